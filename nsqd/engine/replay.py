"""Replays notes after a start, in the order of the log, and applies them to a topic."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from nsqd.engine import notes, seeking
from nsqd.engine.channel import Channel
from nsqd.engine.notes import BadNote
from nsqd.engine.topic import Topic
from nsqd.log.ranges import Ranges, ranges_of


def apply(topic: Topic, content: bytes) -> None:
    """Apply the note to *topic* again. Raises BadNote."""
    try:
        note = json.loads(content)
        what, name = note["note"], note.get("channel", "")
        if not name:
            _change_topic(topic, what, note)
        elif what == notes.CREATE:
            if name not in topic.channels:
                topic.add_channel(name, _ranges(note.get("pending", ())), note["generation"])
        elif what == notes.ONLY:
            topic.exclusive.add(note["first"], note["end"], name)
        elif name in topic.channels:
            _change_channel(topic, topic.channels[name], what, note)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadNote(f"{type(error).__name__}: {error}") from error


def _change_topic(topic: Topic, what: str, note: dict[str, Any]) -> None:
    match what:
        case notes.CREATE:
            pass
        case notes.PAUSE:
            topic.paused = True
        case notes.UNPAUSE:
            topic.paused = False
            topic.pump()
        case notes.HOLD:
            topic.awaiting_registration = True
        case notes.FLOW:
            topic.awaiting_registration = False
            topic.pump()
        case notes.EMPTY:
            topic.empty(note["sequence"])
        case _:
            raise KeyError(what)


def _change_channel(topic: Topic, channel: Channel, what: str, note: dict[str, Any]) -> None:
    match what:
        case notes.DELETE:
            topic.remove_channel(channel.name)
        case notes.PAUSE:
            channel.paused = True
        case notes.UNPAUSE:
            channel.paused = False
        case notes.EMPTY:
            channel.empty()
        case notes.DEFER:
            _defer(topic, channel, note)
        case notes.SEEK:
            seeking.seek(topic, channel, note["sequence"], _ranges(note["pending"]), note["generation"])
        case notes.FINISH:
            channel.merge_finished(_ranges(note["sequences"]), topic.log.next_seq)
        case notes.COMMIT:
            channel.commit(note["sequence"])
        case _:
            raise KeyError(what)


def _defer(topic: Topic, channel: Channel, note: dict[str, Any]) -> None:
    offset_ns = topic.wall.offset_ns
    defer = {seq: (due_ns, attempts) for seq, due_ns, attempts in note["messages"]}
    backlog = channel.backlog
    ranges = [part for one in ranges_of(sorted(defer)) for part in backlog.unfinished(*one)]
    # All together: one by one it would take minutes when a million messages are deferred.
    backlog.discard(ranges)
    for seq in [seq for start, end in ranges for seq in range(start, end)]:
        due_ns, attempts = defer[seq]
        if attempts:
            backlog.attempts[seq] = attempts
        backlog.defer(seq, seq + 1, due_ns - offset_ns)


def _ranges(noted: Iterable[Sequence[int]]) -> Ranges:
    return [(start, end) for start, end in noted]
