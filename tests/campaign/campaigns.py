"""The campaigns by name, with what each does with one seed."""

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

from tests.campaign.bits import flip_everywhere
from tests.campaign.crashes import crash_everywhere
from tests.campaign.faults import any_call, any_read
from tests.campaign.played import play
from tests.campaign.replication.histories import PROFILES, History
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


def replication(seed: int, *, strict: bool) -> Result:
    """Play one history of several nodes; *strict* takes the next profile."""
    profiles = list(PROFILES)
    profile = profiles[(seed + strict) % len(profiles)]
    history = History(seed, profile)
    result = Result(states=1)
    try:
        found = history.run().violations()
    except Exception as error:  # noqa: BLE001 - every error is reported
        result.failed(again("replication", seed, strict=strict), error)
        return result
    result.messages = sum(map(len, history.promises.done.values()))
    if found:
        result.broken(again("replication", seed, strict=strict), map(str, found[:10]))
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
    "replication": lambda seed, *, strict, every, only: replication(seed, strict=strict),
}
# The usual interval. The seed shifts the tested steps, so more seeds are better than a smaller interval.
EVERY: Final = {"calls": 40, "reads": 8, "bits": 97}


def run(name: str, seed: int, *, strict: bool, every: int | None = None, only: str = "") -> Result:
    """Run one campaign with one seed in one mode."""
    try:
        return CAMPAIGNS[name](seed, strict=strict, every=every or EVERY.get(name, 1), only=only)
    except Exception as error:  # noqa: BLE001 - every error is reported
        result = Result()
        result.failed(again(name, seed, strict=strict), error)
        return result


def seeds_for(seconds: float, first: int) -> Iterator[int]:
    """Yield seeds from *first* on, at least one, until *seconds* of processor time are used."""
    until = time.process_time() + seconds
    for seed in count(first):
        yield seed
        if time.process_time() >= until:
            return
