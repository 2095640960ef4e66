"""How long topics without a channel and channels without a consumer have had no reader. Pure."""

from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel
from nsqd.engine.topic import Topic


class Unread:
    """Remembers what had no reader at each look: the time it gives may be too short, but never too long."""

    def __init__(self) -> None:
        self._since_ns: dict[Topic | Channel, int] = {}

    def look(self, broker: Broker, now_ns: int) -> None:
        """Note what has no reader now; to be called every few seconds."""
        exclusive: list[Topic | Channel] = []
        for topic in broker.topics.values():
            if not topic.channels:
                exclusive.append(topic)
            exclusive += [channel for channel in topic.channels.values() if not channel.consumers]
        known = self._since_ns
        self._since_ns = {thing: known.get(thing, now_ns) for thing in exclusive}

    def for_ms(self, thing: Topic | Channel, now_ns: int) -> int | None:
        """How long *thing* has had no reader; None when it has one."""
        has_readers = thing.channels if isinstance(thing, Topic) else thing.consumers
        if has_readers:
            return None
        return max(0, now_ns - self._since_ns.get(thing, now_ns)) // 1_000_000
