"""The exclusive ranges of a topic: messages that were sent to one channel and to no other. Pure.

An entry stays while a reader may ask for it.

A channel that is set back gets what was published to the topic, but not the dead letters that were sent
back to another channel, and a reader of the log with a channel does not get them.
"""

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import Final

from nsqd.log.gaps import EVERYTHING
from nsqd.log.ranges import Ranges

# The most entries of messages that are not retained any more.
_MAX_REMOVED: Final = 1000


class ExclusiveRanges:
    """Ranges of messages and the channel of each, in the order of the log."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, str]] = []

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def end(self) -> int:
        """The sequence behind the last of them; 0 when there are none."""
        return self._entries[-1][1] if self._entries else 0

    def add(self, first: int, end: int, channel_name: str) -> None:
        """Messages ``first <= seq < end`` are that channel's; repeating it changes nothing."""
        if first >= self.end:
            self._entries.append((first, end, channel_name))

    def since(self, seq: int) -> list[tuple[int, int, str]]:
        """The entries that begin at *seq* or behind it."""
        return self._entries[bisect_left(self._entries, seq, key=itemgetter(0)) :]

    def drop_from(self, seq: int) -> None:
        """Drop the entries that end behind *seq*: their messages were not stored."""
        del self._entries[bisect_right(self._entries, seq, key=itemgetter(1)) :]

    def drop(self, start: int, end: int) -> None:
        """Messages ``start <= seq < end`` are for all channels after all."""
        self._entries = [entry for entry in self._entries if entry[1] <= start or end <= entry[0]]

    def drop_below(self, seq: int, asked_from: int = EVERYTHING) -> None:
        """Drop the entries below *seq*, which is not retained any more.

        A reader of the log may ask for what lies behind *asked_from*; for it the newest entries stay.
        """
        gone = bisect_right(self._entries, seq, key=itemgetter(1))
        unasked = bisect_right(self._entries, asked_from, key=itemgetter(1))
        del self._entries[: max(min(unasked, gone), gone - _MAX_REMOVED)]

    def start_of_others(self, channel_name: str, seq: int) -> int:
        """The sequence from which on all messages below *seq* were sent to other channels than this one."""
        at = bisect_left(self._entries, seq, key=itemgetter(0))
        while at and self._entries[at - 1][1] >= seq and self._entries[at - 1][2] != channel_name:
            at -= 1
            seq = self._entries[at][0]
        return seq

    def without_others(self, channel_name: str, ranges: Ranges) -> Ranges:
        """Sorted *ranges* without the messages that were sent to other channels than this one."""
        left: Ranges = []
        begin = bisect_right(self._entries, ranges[0][0], key=itemgetter(1)) if ranges else 0
        entries = [entry for entry in self._entries[begin:] if entry[2] != channel_name]
        at = 0
        for start, end in ranges:
            while at < len(entries) and entries[at][1] <= start:
                at += 1
            place = at
            while place < len(entries) and entries[place][0] < end:
                first, stop, _ = entries[place]
                if start < first:
                    left.append((start, first))
                start = max(start, min(stop, end))
                place += 1
            if start < end:
                left.append((start, end))
        return left
