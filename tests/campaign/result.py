"""What a run of a campaign has seen."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.campaign.ledger import Ledger


@dataclass(slots=True)
class Result:
    """Counts, and the *violations*, each with how to see it again."""

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
        """A promise was broken; *again* is what shows it once more."""
        self.violations.append("\n  ".join([again, *texts]))

    def failed(self, again: str, error: Exception) -> None:
        """A run ended with an error that nobody expects."""
        notes = "\n".join(getattr(error, "__notes__", []))
        self.broken(again, [f"{type(error).__name__}: {error}", *notes.splitlines()])


def again(campaign: str, seed: int, *, strict: bool, at: str = "") -> str:
    """The command that runs one workload once more, or looks at one state of it."""
    mode = "--strict" if strict else "--default"
    return f"python -m tests.campaign {campaign} --seed {seed} {mode}{f' --at {at}' if at else ''}"
