"""The finished messages that a policy retains in a topic's log; decided once a second."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from nsqd.engine.settings import Settings
from nsqd.engine.topic import Topic
from nsqd.log import cursor
from nsqd.log.frames import Block
from nsqd.log.gaps import CannotRead
from nsqd.log.segment import Segment
from nsqd.storage.topic_log import store_of

# Retained messages are in about this many segments, because they are removed one segment at a time.
_PARTS: Final = 8
_MIN_PART_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class RetentionLimit:
    """How long finished messages stay, and how many bytes of them; 0 is no bound, and one of them is set."""

    time_ns: int = 0
    size: int = 0

    def is_full(self, size: int, age_ns: int) -> bool:
        """Whether a segment of this size and age must end, so that retained messages are removed in parts."""
        return bool(self.time_ns and age_ns * _PARTS >= self.time_ns) or bool(
            self.size and size >= max(self.size // _PARTS, _MIN_PART_BYTES)
        )


def retention_start(
    segments: Sequence[Segment], kept: RetentionLimit, now_ns: int, newest_ns: Callable[[], int]
) -> int:
    """The sequence from which on a policy retains everything: the start of a segment, or behind the last one.

    A segment is retained while its last message is young enough and the segments behind it are smaller than
    the size to keep. *newest_ns* tells when the last message of all was published; it is called only when the
    index does not say.
    """
    begin = segments[-1].next if segments else 0
    behind = 0
    # When the next segment began, this one was over.
    ended_ns = 0
    for segment in reversed(segments):
        if kept.size and behind >= kept.size:
            break
        if kept.time_ns and segment.began_ns + kept.time_ns <= now_ns:
            over_ns = ended_ns or newest_ns()
            if over_ns + kept.time_ns <= now_ns:
                break
        begin = segment.first
        behind += segment.size
        ended_ns = segment.began_ns or ended_ns
    return begin


def apply_retention(topic: Topic, now_ns: int) -> None:
    """Set the retention start of the log; *now_ns* is wall time. Takes time in proportion to its files."""
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
        # So that messages that are no longer retained are removed.
        topic.changed = True


def _bounds(settings: Settings) -> list[RetentionLimit]:
    """The retained messages, and the window of published ids that a start reads from the log."""
    found: list[RetentionLimit] = []
    if settings.retain_time_ns or settings.retain_bytes:
        found.append(RetentionLimit(settings.retain_time_ns, settings.retain_bytes))
    if settings.dedup_window_ns:
        found.append(RetentionLimit(settings.dedup_window_ns))
    return found


def _newest_ns(topic: Topic, now_ns: int) -> int:
    """When the last message was published; *now_ns* if it cannot be read just now, 0 if there is none."""
    try:
        for start, end, found in cursor.backwards(topic.log, topic.log.log_start, topic.log.next_seq):
            if isinstance(found, Block) and start < end:
                return found.timestamp_ns(end - 1)
    except CannotRead:
        return now_ns
    return 0
