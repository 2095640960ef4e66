"""Restoring a topic from its checkpoint and the log behind that."""

from collections.abc import Callable, Iterable

from nsqd.engine import finished_ranges, replay
from nsqd.engine.journal import WIDTH
from nsqd.engine.notes import BadNote
from nsqd.engine.state import CHANNEL_COUNTERS, TopicState
from nsqd.engine.topic import Topic
from nsqd.log.ranges import Ranges, RangeSet, merged, within, without
from nsqd.log.segment_files import FoundSegments
from nsqd.log.segments import Segments
from nsqd.log.tail_records import RecoveredMessages, RecoveredNote


def fill(topic: Topic, state: TopicState, now_ns: int = 0) -> None:
    """Restore the new topic from the checkpoint. Messages due at *now_ns* are not deferred."""
    offset_ns = topic.wall.offset_ns
    topic.paused = state.paused
    topic.awaiting_registration = state.awaiting_registration
    for first, end, name in state.exclusive:
        topic.exclusive.add(first, end, name)
    topic.deleted_channels = dict(state.deleted_channels)
    topic.message_count = state.counters["messages"]
    topic.message_bytes = state.counters["bytes"]
    topic.dropped_count = state.counters["dropped"]
    for name, pending in state.channels.items():
        channel = topic.add_channel(name, generation=pending.generation)
        channel.paused = pending.paused
        channel.committed = pending.committed
        channel.ahead = pending.ahead
        channel.absent = pending.absent
        for counter, field in CHANNEL_COUNTERS.items():
            setattr(channel, field, pending.counters[counter])
        pending.fill(channel.backlog, offset_ns, now_ns)
    # Deferred messages of a topic stay deferred until the topic is unpaused.
    state.backlog.fill(topic.backlog, offset_ns)
    dues, known = state.backlog.dues, RangeSet()
    for at in range(len(dues) - WIDTH, -1, -WIDTH):
        for start, end in known.missing(dues[at + 1], dues[at + 2]):
            topic.deferred.add(start, end, max(1, dues[at] - offset_ns))
        known.add(dues[at + 1], dues[at + 2])


def replay_notes(topic: Topic, noted: RecoveredNote, warn: Callable[[str], None]) -> None:
    """Apply a note to the topic."""
    try:
        replay.apply(topic, noted.content)
    except BadNote as error:
        warn(f"TOPIC({topic.name}): note {noted.number} cannot be understood - {error}")


def replay_tail(
    topic: Topic,
    tail_records: Iterable[RecoveredMessages | RecoveredNote],
    next_seq: int,
    warn: Callable[[str], None],
    *,
    until: int | None = None,
) -> Ranges:
    """Apply to the topic the log's records after the checkpoint, in the order of the log.

    The log ended at *next_seq* then. Whenever a note is applied, the log is as long as it was when the note
    was written, because the note is about the messages of that moment. Messages from *until* on are left out,
    if that is given. Returns what was stored.
    """
    stored: Ranges = []
    topic.log.next_seq = next_seq
    for happening in tail_records:
        if isinstance(happening, RecoveredNote):
            replay_notes(topic, happening, warn)
        elif until is None or happening.first < until:
            _add_pending(topic, happening)
            stored.append((happening.first, happening.next))
            topic.log.next_seq = max(topic.log.next_seq, happening.next)
    return stored


def _add_pending(topic: Topic, stored: RecoveredMessages) -> None:
    """Messages stored after the checkpoint are pending on the channels that existed when they were stored.

    They are counted as they were then: a counter that falls a little seems to have begun again.
    """
    topic.add_stored(stored.first, stored.next, topic.wall.engine_ns(stored.due_ns) if stored.due_ns else 0)
    topic.message_count += stored.next - stored.first
    topic.message_bytes += stored.body_bytes


def load_stored_ranges(
    topic: Topic, noted: Ranges | None, stored: Ranges, damaged: Ranges, segments: Segments
) -> None:
    """Restore which messages the log has or had, when everything else of the topic is restored.

    *noted* is what the checkpoint says of these, *stored* what came after it. Without a checkpoint only what
    is on the disk counts: a missing message may be pending on a channel that is not known here. A message
    that is pending and is missing or *damaged* was never had: a power cut took it, or it never came to this
    copy. So another nsqd that has it delivers it.
    """
    stored_ranges = merged([*segments.extents(), *stored] if noted is None else [*noted, *stored])
    lost = merged(damaged + [(gap.start, gap.end) for gap in segments.losses(topic.log.log_start)])
    if noted is not None:
        pending = finished_ranges.pending_anywhere(topic)
        lost = [part for start, end in lost for part in within(pending, start, end)]
    topic.log.stored_ranges.reset(without(stored_ranges, lost), segments.end)


def is_complete(found: FoundSegments) -> bool:
    """Whether the log exists from its beginning, so that its notes name every channel."""
    return not found.segments or any(
        isinstance(one, RecoveredNote) and one.number == 1 for one in found.tail_records
    )
