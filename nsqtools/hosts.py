"""Chooses the destination of the next message. Pure: time and chance come from the caller."""

from collections.abc import Callable, Sequence
from typing import Final

FIRST_RETRY_SECONDS: Final = 30.0
MAX_RETRY_SECONDS: Final = 900.0

FIRST_EXPLORATION: Final = 0.3
MIN_EXPLORATION: Final = 0.01
EXPLORATION_DECAY: Final = 0.9

# Response times are stored for five minutes.
BUCKETS: Final = 120
BUCKET_SECONDS: Final = 2.5

ROUND_ROBIN: Final = "round-robin"
HOST_POOL: Final = "hostpool"
EPSILON_GREEDY: Final = "epsilon-greedy"
MODES: Final = (HOST_POOL, ROUND_ROBIN, EPSILON_GREEDY)


def chooser(mode: str, hosts: Sequence[str], chance: Callable[[], float]) -> "RoundRobin":
    """The chooser of a ``--mode``; *chance* returns numbers from 0 up to 1."""
    if mode == ROUND_ROBIN:
        return RoundRobin(hosts)
    if mode == EPSILON_GREEDY:
        return EpsilonGreedy(hosts, chance)
    return HostPool(hosts)


class RoundRobin:
    """All hosts in turn, even after failures; the first turn is the second host's, as in the original.

    Other modes learn from the results. Times are in seconds of a monotonic clock.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._names = list(hosts)
        self._next = 0

    def pick(self, now: float) -> str:  # noqa: ARG002 - for other modes
        self._next = (self._next + 1) % len(self._names)
        return self._names[self._next]

    def succeeded(self, host: str, seconds: float, now: float) -> None: ...

    def failed(self, host: str, now: float) -> None: ...


class _Host:
    __slots__ = ("dead", "name", "retry_at", "retry_delay", "times")

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.retry_delay = FIRST_RETRY_SECONDS
        self.retry_at = 0.0
        self.times = ResponseTimes()

    def may_be_tried(self, now: float) -> bool:
        return not self.dead or self.retry_at < now

    def tried(self, now: float) -> None:
        """A dead host gets one message; if that fails, it rests twice as long as before."""
        if self.dead:
            self.retry_delay = min(self.retry_delay * 2, MAX_RETRY_SECONDS)
            self.retry_at = now + self.retry_delay


class HostPool(RoundRobin):
    """Hosts in turn, except those that failed, which are tried again after a growing delay."""

    def __init__(self, hosts: Sequence[str]) -> None:
        super().__init__(hosts)
        self._hosts = [_Host(host) for host in hosts]
        self._by_name = {host.name: host for host in self._hosts}

    def pick(self, now: float) -> str:
        for step in range(len(self._hosts)):
            at = (self._next + step) % len(self._hosts)
            host = self._hosts[at]
            if host.may_be_tried(now):
                host.tried(now)
                self._next = at + 1
                return host.name
        # All hosts have failed: sending to a host that failed a moment ago is no worse than sending nothing.
        for host in self._hosts:
            host.dead = False
        self._next = 0
        return self._hosts[0].name

    def succeeded(self, host: str, seconds: float, now: float) -> None:  # noqa: ARG002 - for other modes
        self._by_name[host].dead = False

    def failed(self, host: str, now: float) -> None:
        state = self._by_name[host]
        if not state.dead:
            state.dead = True
            state.retry_delay = FIRST_RETRY_SECONDS
            state.retry_at = now + state.retry_delay


class EpsilonGreedy(HostPool):
    """Mostly the fast hosts, by weighted chance; sometimes any host, to measure it."""

    def __init__(self, hosts: Sequence[str], chance: Callable[[], float]) -> None:
        super().__init__(hosts)
        self._chance = chance
        self._exploration = FIRST_EXPLORATION

    def pick(self, now: float) -> str:
        if self._chance() < self._exploration:
            self._exploration = max(self._exploration * EXPLORATION_DECAY, MIN_EXPLORATION)
            return super().pick(now)
        weighted = [
            (host, 1 / mean)
            for host in self._hosts
            if host.may_be_tried(now) and (mean := host.times.mean(now)) > 0
        ]
        mark = self._chance() * sum(weight for _, weight in weighted)
        for host, weight in weighted:
            mark -= weight
            if mark < 0:
                host.tried(now)
                return host.name
        return super().pick(now)

    def succeeded(self, host: str, seconds: float, now: float) -> None:
        super().succeeded(host, seconds, now)
        self._by_name[host].times.add(seconds, now)


class ResponseTimes:
    """The response times of the last five minutes; recent ones weigh more."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: dict[int, tuple[int, float]] = {}  # number of the bucket -> results, seconds

    def add(self, seconds: float, now: float) -> None:
        number = int(now / BUCKET_SECONDS)
        count, total = self._buckets.get(number, (0, 0.0))
        self._buckets[number] = count + 1, total + seconds
        for old in [old for old in self._buckets if old <= number - BUCKETS]:
            del self._buckets[old]

    def mean(self, now: float) -> float:
        """The mean in seconds; 0 without results."""
        newest = int(now / BUCKET_SECONDS)
        weights = times = 0.0
        for number, (count, total) in self._buckets.items():
            weight = BUCKETS - (newest - number)
            if weight > 0:
                weights += weight
                times += weight * total / count
        return times / weights if weights else 0.0
