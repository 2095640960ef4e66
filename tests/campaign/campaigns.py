"""The campaigns by name, with what each does with one seed."""

from collections.abc import Callable
from typing import Final

from tests.campaign.bits import flip_everywhere
from tests.campaign.crashes import crash_everywhere
from tests.campaign.faults import any_call, any_read
from tests.campaign.played import play
from tests.campaign.result import Result, again
from tests.campaign.two_faults import FAILED_CALL, SECOND_CRASH, failed_call, second_crash

POWER_CUT: Final = "power-cut"
KILL: Final = "kill"


def crashes(campaign: str, seed: int, *, strict: bool, every: int = 1, only: str = "") -> Result:
    """Crash at each *every*-th step of one workload."""
    try:
        played = play(seed, strict=strict)
    except Exception as error:  # noqa: BLE001 - every error is reported
        result = Result()
        result.failed(again(campaign, seed, strict=strict), error)
        return result
    return crash_everywhere(played, campaign, only=only, every=every)


def bits(seed: int, *, strict: bool, every: int) -> Result:
    """Flip bits in the files that one workload has left, each in a separate run."""
    played = play(seed, strict=strict, stop=True)
    result = Result(ledger=played.ledger)
    for path, offset, broken in flip_everywhere(played, every):
        result.states += 1
        result.messages += len(played.model.messages)
        if broken:
            result.broken(f"bits --seed {seed}: byte {offset} of {path}", [broken])
    return result


# Name -> a function of a seed, the mode, the interval of tested steps, calls, reads or bytes, and optionally
# the one state to test.
CAMPAIGNS: Final[dict[str, Callable[..., Result]]] = {
    POWER_CUT: lambda seed, *, strict, every, only: crashes(
        POWER_CUT, seed, strict=strict, every=every, only=only
    ),
    KILL: lambda seed, *, strict, every, only: crashes(KILL, seed, strict=strict, every=every, only=only),
    FAILED_CALL: lambda seed, *, strict, every, only: failed_call(seed, strict=strict, only=only),
    SECOND_CRASH: lambda seed, *, strict, every, only: second_crash(seed, strict=strict, only=only),
    "calls": lambda seed, *, strict, every, only: any_call(seed, strict=strict, every=every),
    "reads": lambda seed, *, strict, every, only: any_read(seed, strict=strict, every=every),
    "bits": lambda seed, *, strict, every, only: bits(seed, strict=strict, every=every),
}
