"""How many messages each connection of a consumer may have in flight. Pure: time and chance are arguments.

Connections share ``max_in_flight`` evenly, each at least 1 and none above what its nsqd allows. When there
are more connections than messages to share, only so many have RDY 1, and idle ones pass it on.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from nsqclient._backoff import Phase

Key = TypeVar("Key", bound=Hashable)

Choose = Callable[[Sequence[Key]], Key]

_NOTHING: Final[Mapping[Any, int]] = MappingProxyType({})


def longest_wait(connections: int, max_in_flight: int, idle_timeout: float) -> float:
    """The seconds an nsqd may wait for its turn while others send nothing; 0 if all have a share."""
    if not 0 < max_in_flight < connections:
        return 0.0
    return (connections / max_in_flight - 1) * idle_timeout


@dataclass(slots=True, eq=False, repr=False)
class _Share:
    limit: int  # the most this nsqd accepts
    count: int = 0  # the last RDY sent to it
    sent_at: float = float("-inf")  # when that RDY was sent
    received_at: float = 0  # when its last message came


class RdyDistribution(Generic[Key]):
    """The RDY count of each connection; every change returns only the counts that have to be sent."""

    def __init__(self, max_in_flight: int, low_rdy_idle_timeout: float, low_rdy_timeout: float) -> None:
        self.max_in_flight = max_in_flight
        self._idle_timeout: Final = low_rdy_idle_timeout
        self._hold_timeout: Final = low_rdy_timeout
        self._phase = Phase.RUNNING
        self._shares: dict[Key, _Share] = {}

    def __len__(self) -> int:
        return len(self._shares)

    def count(self, key: Key) -> int:
        """The RDY count of this connection; 0 for one that has ended."""
        share = self._shares.get(key)
        return share.count if share else 0

    def add(self, key: Key, limit: int, now: float) -> dict[Key, int]:
        """A connection was opened; the others make room for it."""
        waits_for_its_turn = self._takes_turns
        self._shares[key] = _Share(limit, received_at=now)
        return {} if waits_for_its_turn else self._spread(now)

    def remove(self, key: Key, now: float, choose: Choose[Key]) -> dict[Key, int]:
        """A connection has ended; the others take over its share, including a trial."""
        share = self._shares.pop(key, None)
        if share is None:
            return {}
        if self._phase is Phase.TRIAL and share.count:
            return self.enter(Phase.TRIAL, now, choose)
        if not self._takes_turns:
            return self._spread(now)
        heir = next((key for key, other in self._shares.items() if not other.count), None)
        return self._send({heir: 1}, now) if share.count and heir is not None else {}

    @property
    def _takes_turns(self) -> bool:
        """Whether there are more connections than messages.

        A new or lost connection then changes nothing for the others, and the code skips them. Otherwise
        thousands of new connections would have a quadratic cost.
        """
        return self._phase is Phase.RUNNING and 0 < self.max_in_flight < len(self._shares)

    def heard(self, key: Key, now: float) -> None:
        """A message came in on this connection."""
        if share := self._shares.get(key):
            share.received_at = now

    def enter(self, phase: Phase, now: float, choose: Choose[Key]) -> dict[Key, int]:
        """Stop all connections, try one, or run again."""
        self._phase = phase
        if phase is Phase.TRIAL and self._shares and self.max_in_flight > 0:
            chosen = choose(list(self._shares))
            return self._send({key: int(key == chosen) for key in self._shares}, now)
        return self._spread(now)

    def resize(self, max_in_flight: int, now: float) -> dict[Key, int]:
        """Change the number of messages to share; 0 pauses the consumer."""
        self.max_in_flight = max_in_flight
        return self._spread(now)

    def rotate(
        self, now: float, choose: Choose[Key], in_flight: Mapping[Key, int] = _NOTHING
    ) -> dict[Key, int]:
        """With more connections than messages to share, move RDY away from idle connections.

        Call it regularly. A trial moves as well, because on an nsqd without messages it would never have an
        outcome. The connection that has waited longest is next, so each has its turn in a bounded time.

        A connection with messages *in_flight* is not silent: it can send no more before they are answered.
        Nor is its share passed on before, because there would be more messages than max_in_flight.
        """
        to_share = 1 if self._phase is Phase.TRIAL else self.max_in_flight
        if self._phase is Phase.STOPPED or self.max_in_flight <= 0 or to_share >= len(self._shares):
            return {}
        wanted = {key: share.count for key, share in self._shares.items()}
        for key, share in self._shares.items():
            silent_for = 0 if in_flight.get(key) else now - max(share.received_at, share.sent_at)
            if share.count and (silent_for > self._idle_timeout or now - share.sent_at > self._hold_timeout):
                wanted[key] = 0
        taken = sum(max(count, in_flight.get(key, 0)) for key, count in wanted.items())
        free = min(to_share - sum(wanted.values()), self.max_in_flight - taken)
        waiting = [key for key, share in self._shares.items() if share.count == 0]
        given_up = [key for key, share in self._shares.items() if share.count and not wanted[key]]
        for key in [
            *self._longest(waiting, free, choose),
            *self._longest(given_up, free - len(waiting), choose),
        ]:
            wanted[key] = 1
        return self._send(wanted, now)

    def _longest(self, keys: list[Key], count: int, choose: Choose[Key]) -> list[Key]:
        """The *count* of *keys* that have waited longest, chosen by chance among equals; sorts them once."""
        chosen: list[Key] = []
        for _, equals in groupby(sorted(keys, key=self._sent_at), self._sent_at):
            group = list(equals)
            if len(chosen) + len(group) <= count:
                chosen += group
                continue
            while len(chosen) < count:
                chosen.append(group.pop(group.index(choose(group))))
            break
        return chosen

    def _sent_at(self, key: Key) -> float:
        return self._shares[key].sent_at

    def _spread(self, now: float) -> dict[Key, int]:
        if self._phase is Phase.STOPPED or self.max_in_flight <= 0 or not self._shares:
            return self._send(dict.fromkeys(self._shares, 0), now)
        if self._phase is Phase.TRIAL:
            if any(share.count for share in self._shares.values()):
                return {}  # a new connection waits for the outcome
            newest = next(reversed(self._shares))  # there was none to try before it
            return self._send({newest: 1}, now)
        if len(self._shares) <= self.max_in_flight:
            each = self.max_in_flight // len(self._shares)
            return self._send({key: min(each, share.limit) for key, share in self._shares.items()}, now)
        # Connections with a share keep one message of it, as far as there are enough; rotate() does the rest.
        holders_first = sorted(self._shares, key=lambda key: self._shares[key].count == 0)
        return self._send({key: int(at < self.max_in_flight) for at, key in enumerate(holders_first)}, now)

    def _send(self, wanted: dict[Key, int], now: float) -> dict[Key, int]:
        lowered: dict[Key, int] = {}
        raised: dict[Key, int] = {}
        for key, count in wanted.items():
            share = self._shares[key]
            if count == share.count:
                continue
            (lowered if count < share.count else raised)[key] = count
            share.count = count
            share.sent_at = now
        # Lowered counts first, so that the sum is never above max_in_flight while they are sent.
        return lowered | raised
