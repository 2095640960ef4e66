"""The result of a campaign's run."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.campaign.ledger import Ledger


@dataclass(slots=True)
class Result:
    """Counts, and the *violations*, each with the command that shows it again."""

    states: int = 0
    messages: int = 0
    violations: list[str] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Counter)

    def add(self, other: "Result") -> None:
        self.states += other.states
        self.messages += other.messages
        self.violations += other.violations
        self.ledger += other.ledger

    def broken(self, again: str, texts: Iterable[str]) -> None:
        """Note a broken promise; *again* is the command that shows it again."""
        self.violations.append("\n  ".join([again, *texts]))

    def failed(self, again: str, error: Exception) -> None:
        """Note that a run ended with an unexpected error."""
        notes = "\n".join(getattr(error, "__notes__", []))
        self.broken(again, [f"{type(error).__name__}: {error}", *notes.splitlines()])


def again(campaign: str, seed: int, *, strict: bool, at: str = "") -> str:
    """Return the command that runs one workload again, or tests one state of it."""
    mode = "--strict" if strict else "--default"
    return f"python -m tests.campaign {campaign} --seed {seed} {mode}{f' --at {at}' if at else ''}"
