"""When each channel is checked next: for a time-out, a due message or a new attempt."""

from heapq import heapify, heappop, heappush
from typing import Final

from nsqd.engine.channel import NEVER, Channel

# So many stale entries are kept at least; beyond that, no more than there are channels with a time.
_MIN_STALE: Final = 64


class Timers:
    """Channels by the time of their next check; each has one time at most."""

    __slots__ = ("_heap", "_max_length", "_serial")

    def __init__(self) -> None:
        # (when, serial, channel): entries whose time is not the channel's wake_ns any more are stale.
        self._heap: list[tuple[int, int, Channel]] = []
        self._serial = 0
        # How long the heap may become before stale entries are dropped.
        self._max_length = 2 * _MIN_STALE

    def schedule(self, channel: Channel, when_ns: int) -> None:
        """Check the channel at that time, or earlier."""
        if when_ns < channel.wake_ns:
            channel.wake_ns = when_ns
            self._serial += 1
            heappush(self._heap, (when_ns, self._serial, channel))
            if len(self._heap) > self._max_length:
                self._drop_stale()

    def _drop_stale(self) -> None:
        """Keep one entry for each channel: a far time is scheduled again after each nearer one."""
        valid = {entry[2]: entry for entry in self._heap if entry[0] == entry[2].wake_ns}
        self._heap = list(valid.values())
        heapify(self._heap)
        self._max_length = 2 * max(_MIN_STALE, len(self._heap))

    def next_ns(self) -> int | None:
        """When :meth:`take_due` has something; perhaps early, never late. None while nothing is timed."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ns: int) -> list[Channel]:
        """The channels whose time has come, each once; their times are cleared."""
        due: list[Channel] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            when_ns, _, channel = heappop(heap)
            if when_ns != channel.wake_ns:
                continue
            channel.wake_ns = NEVER
            if not channel.deleted:
                due.append(channel)
        return due

    def forget(self, channel: Channel) -> None:
        """Drop the times of a removed channel, so that its log does not stay in memory until then."""
        if channel.wake_ns != NEVER:
            self._heap = [entry for entry in self._heap if entry[2] is not channel]
            heapify(self._heap)
