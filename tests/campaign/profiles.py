"""Kinds of work: how often a workload does what. The seed chooses the kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Delays of DPUB and REQ: short ones, and one longer than a workload lasts.
_SOME_DELAYS_MS: Final = (200, 1500, 20_000, 3_000_000)


@dataclass(frozen=True, slots=True)
class Profile:
    """The frequency of each action, as weights by the action's name."""

    weights: Mapping[str, int]
    steps: int = 60
    # Commands with which messages are published.
    kinds: tuple[str, ...] = ("pub", "pub", "pub", "mpub", "dpub")
    # Bytes of a body; some are larger than a page and than a segment.
    sizes: tuple[int, ...] = (10, 40, 100, 100, 300, 700, 5000)
    # Delays of DPUB and REQ in milliseconds, and how often a message gets a different delay from all others.
    delays_ms: tuple[int, ...] = _SOME_DELAYS_MS
    requeue_ms: tuple[int, ...] = (0, 0, 700, 15_000, 2_000_000)
    own_delays: float = 0.0
    # Shares of a consumer's messages that are finished, requeued and touched; the rest times out.
    finished: float = 0.55
    requeued: float = 0.15
    touched: float = 0.05
    ready: tuple[int, ...] = (1, 3, 20)
    waits_s: tuple[float, ...] = (0.005, 0.03, 0.3, 1.2, 1.2, 5.0)
    # How often a channel is created from the earliest position while a compaction begins.
    meets_earliest: float = 0.3


_MIXED: Final = Profile(
    {
        "publish": 40,
        "administrate": 7,
        "recreate": 2,
        "recreate_channel": 1,
        "seek": 2,
        "handle": 3,
        "subscribe": 8,
        "unsubscribe": 2,
        "answer": 22,
        "wait": 16,
        "restart": 1,
    },
    meets_earliest=0.7,
)

# Most messages are finished soon and a few are held for long, so segments are dropped or compacted.
_HELD: Final = Profile(
    {
        "publish": 40,
        "administrate": 2,
        "recreate": 1,
        "seek": 2,
        "handle": 2,
        "subscribe": 12,
        "unsubscribe": 1,
        "answer": 40,
        "wait": 24,
        "restart": 1,
    },
    steps=100,
    kinds=("pub", "pub", "mpub", "mpub", "mpub", "mpub", "dpub"),
    sizes=(10, 40, 100, 100, 300, 700),
    delays_ms=(3_000_000,),
    requeue_ms=(0, 2_000_000),
    finished=0.93,
    requeued=0.04,
    touched=0.01,
    ready=(20, 100),
    waits_s=(0.03, 0.3, 1.2, 1.2, 5.0, 11.0),
    meets_earliest=0.15,
)

# Every message has a different due time, and comes back with another or times out.
_TIMED: Final = Profile(
    {
        "publish": 40,
        "administrate": 4,
        "recreate": 1,
        "recreate_channel": 1,
        "seek": 1,
        "handle": 4,
        "subscribe": 10,
        "unsubscribe": 3,
        "answer": 25,
        "wait": 20,
        "restart": 2,
    },
    kinds=("pub", "mpub", "dpub", "dpub", "dpub"),
    sizes=(10, 40, 100, 100, 300),
    own_delays=0.9,
    finished=0.4,
    requeued=0.35,
    ready=(3, 20),
    waits_s=(0.03, 0.3, 1.2, 2.5, 5.0),
)

PROFILES: Final = (_MIXED, _HELD, _TIMED)


def profile_of(seed: int) -> Profile:
    return PROFILES[seed % len(PROFILES)]
