"""The campaigns by name: what each does with one seed, and what it counts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.campaign import faults
from tests.campaign.bits import flip_everywhere
from tests.campaign.crashes import Tally, crash_everywhere
from tests.campaign.played import play


@dataclass(slots=True)
class Result:
    """What a campaign has seen; *violations* say each how to see it again."""

    states: int = 0
    messages: int = 0
    violations: list[str] = field(default_factory=list)

    def add(self, other: "Result") -> None:
        self.states += other.states
        self.messages += other.messages
        self.violations += other.violations


def crashes(campaign: str, seed: int, *, strict: bool, at: tuple[int, int] | None = None) -> Result:
    """A crash at every step of one workload; *at* is the only one to look at."""
    tally = Tally()
    try:
        played = play(seed, strict=strict)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
        result = Result()
        _teller(campaign, result)(f"--seed {seed} {'--strict' if strict else '--default'}", error)
        return result
    crash_everywhere(played, campaign, tally, at=at)
    return Result(tally.states, tally.messages, [str(one) for one in tally.violations])


def any_call(seed: int, *, strict: bool, every: int) -> Result:
    """Calls of one workload fail, each in a run of its own."""
    result = Result()
    result.states, result.messages = faults.any_call(
        seed, strict=strict, every=every, tell=_teller("calls", result)
    )
    return result


def any_read(seed: int, *, strict: bool, every: int) -> Result:
    """Reads of a node that starts fail, each in a run of its own."""
    result = Result()
    result.states, result.messages = faults.any_read(
        seed, strict=strict, every=every, tell=_teller("reads", result)
    )
    return result


def bits(seed: int, *, strict: bool, every: int) -> Result:
    """Bytes of what one workload has left are wrong, each in a run of its own."""
    played = play(seed, strict=strict, stop=True)
    result = Result()
    for path, offset, broken in flip_everywhere(played, every):
        result.states += 1
        result.messages += len(played.model.messages)
        if broken:
            result.violations.append(f"bits --seed {seed}: byte {offset} of {path}: {broken}")
    return result


# By name: one seed in one mode, and every how manieth call, read or byte.
CAMPAIGNS: Final[dict[str, Callable[..., Result]]] = {
    "power-cut": lambda seed, *, strict, every: crashes("power-cut", seed, strict=strict),
    "kill": lambda seed, *, strict, every: crashes("kill", seed, strict=strict),
    "calls": any_call,
    "reads": any_read,
    "bits": bits,
}


def _teller(campaign: str, result: Result) -> Callable[[str, Exception], None]:
    def tell(what: str, error: Exception) -> None:
        notes = "\n".join(getattr(error, "__notes__", []))
        result.violations.append(f"{campaign} {what}: {type(error).__name__}: {error}\n{notes}")

    return tell
