"""When the oldest message that a channel must deliver was published. Pure.

Most often that message is in memory, or is the same as at the last check. Others are read, a limited number
in a second. Beyond that the time of the last check is given: a message may seem older than it is, never
younger.
"""

from typing import Final

from nsqd.engine.channel import Channel
from nsqd.engine.topic import Topic
from nsqd.log.frames import Block
from nsqd.log.gaps import CannotRead
from nsqd.log.tail import MessageLog

# How many messages are read from the disk within a second for this.
_READS: Final = 100
_SECOND_NS: Final = 1_000_000_000


class Ages:
    """See the module."""

    def __init__(self) -> None:
        # For each channel the oldest message that is pending, and its time.
        self._oldest: dict[Channel, tuple[int, int]] = {}
        self._reads_left = _READS
        self._since_ns = 0

    def oldest_ns(self, topic: Topic, channel: Channel, now_ns: int) -> int:
        """The time in ns since 1970; 0 while nothing is pending. *now_ns* is the engine's time.

        Messages of promoted copies count too.
        """
        oldest_ns = self._oldest_ns(topic, channel, now_ns)
        if channel.siblings:
            for copy in topic.promoted:
                sibling = copy.channels.get(channel.name)
                if sibling is not None and sibling.backlog.count():
                    found_ns = self._oldest_ns(copy, sibling, now_ns)
                    oldest_ns = min(oldest_ns or found_ns, found_ns or oldest_ns)
        return oldest_ns

    def _oldest_ns(self, topic: Topic, channel: Channel, now_ns: int) -> int:
        seq = channel.backlog.lowest()
        if seq is None:
            # The channel will get the topic's own backlog, unless that was acknowledged already.
            seq = topic.backlog.lowest()
            if seq is None or seq < channel.committed:
                self._oldest.pop(channel, None)
                return 0
        known = self._oldest.get(channel)
        if known is not None and known[0] == seq:
            return known[1]
        if seq < topic.log.resident_from and known is not None and not self._may_read(now_ns):
            return known[1]
        found_ns = _published_ns(topic.log, seq)
        if found_ns:
            self._oldest[channel] = (seq, found_ns)
        return found_ns or (known[1] if known else 0)

    def forget_deleted(self) -> None:
        """Forget channels that were deleted."""
        for channel in [one for one in self._oldest if one.deleted]:
            del self._oldest[channel]

    def _may_read(self, now_ns: int) -> bool:
        if now_ns - self._since_ns >= _SECOND_NS:
            self._since_ns, self._reads_left = now_ns, _READS
        self._reads_left -= 1
        return self._reads_left >= 0


def _published_ns(log: MessageLog, seq: int) -> int:
    """When the message was published; 0 if it cannot be read, now or ever."""
    try:
        block = log.read(seq, seq + 1)
    except CannotRead:
        return 0
    return block.timestamp_ns(seq) if isinstance(block, Block) else 0
