"""What a policy keeps of a topic's log although everybody has finished it; decided once a second."""

from nsqd.engine.settings import Settings
from nsqd.engine.topic import Topic
from nsqd.log.cursor import Cursor
from nsqd.log.frames import Block
from nsqd.log.gaps import CannotRead
from nsqd.log.retention import RetentionLimit, retention_start
from nsqd.storage.topic_log import store_of


def keep(topic: Topic, now_ns: int) -> None:
    """Decide from where on the log is kept; *now_ns* is wall time. Takes time in proportion to its files."""
    store = store_of(topic)
    if store is None:
        return
    kept = _bounds(topic.settings)
    segments = store.segments
    began_ns = segments[-1].began_ns if segments else 0
    if began_ns and any(one.is_full(segments[-1].size, now_ns - began_ns) for one in kept):
        store.appender.end_segment()
    found = list(segments)
    begins = [retention_start(found, one, now_ns, lambda: _newest_ns(topic, now_ns)) for one in kept]
    if topic.raise_retention_start(min(begins)):
        # So that messages that are no longer kept are removed.
        topic.changed = True


def _bounds(settings: Settings) -> list[RetentionLimit]:
    """What is kept for reading again, and the window of published ids that a start reads from the log."""
    found: list[RetentionLimit] = []
    if settings.retain_time_ns or settings.retain_bytes:
        found.append(RetentionLimit(settings.retain_time_ns, settings.retain_bytes))
    if settings.dedup_window_ns:
        found.append(RetentionLimit(settings.dedup_window_ns))
    return found


def _newest_ns(topic: Topic, now_ns: int) -> int:
    """When the last message was published; *now_ns* if it cannot be read just now, 0 if there is none."""
    cursor = Cursor(topic.log)
    try:
        for start, end, found in cursor.backwards(topic.log.log_start, topic.log.next_seq):
            if isinstance(found, Block) and start < end:
                return found.timestamp_ns(end - 1)
    except CannotRead:
        return now_ns
    return 0
