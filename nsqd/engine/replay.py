"""Replaying notes after a start, in the order of the log: doing to a topic what they say."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from nsqd.engine import seeking
from nsqd.engine.channel import Channel
from nsqd.engine.notes import (
    COMMIT,
    CREATE,
    DEFER,
    DELETE,
    EMPTY,
    FINISH,
    FLOW,
    HOLD,
    ONLY,
    PAUSE,
    SEEK,
    UNPAUSE,
    BadNote,
)
from nsqd.engine.topic import Topic
from nsqd.log.ranges import Ranges, ranges_of


def apply(topic: Topic, content: bytes) -> None:
    """Do to *topic* what was done to it when the note was written. Raises BadNote."""
    try:
        note = json.loads(content)
        what, name = note["note"], note.get("channel", "")
        if not name:
            _ON_TOPIC[what](topic, note)
        elif what == CREATE:
            if name not in topic.channels:
                pending = _ranges(note.get("pending", ()))
                topic.add_channel(name, pending, note["generation"])
        elif what == ONLY:
            topic.exclusive.add(note["first"], note["end"], name)
        elif name in topic.channels:
            _ON_CHANNEL[what](topic, topic.channels[name], note)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadNote(f"{type(error).__name__}: {error}") from error


def _pause(owner: Topic | Channel) -> None:
    owner.paused = True


def _unpause_topic(topic: Topic, _note: dict[str, Any]) -> None:
    topic.paused = False
    topic.pump()


def _hold(topic: Topic, _note: dict[str, Any]) -> None:
    topic.awaiting_registration = True


def _flow(topic: Topic, _note: dict[str, Any]) -> None:
    topic.awaiting_registration = False
    topic.pump()


def _unpause(_topic: Topic, channel: Channel, _note: dict[str, Any]) -> None:
    channel.paused = False


def _delete(topic: Topic, channel: Channel, _note: dict[str, Any]) -> None:
    topic.remove_channel(channel.name)


def _defer(topic: Topic, channel: Channel, note: dict[str, Any]) -> None:
    offset_ns = topic.wall.offset_ns
    defer = {seq: (due_ns, attempts) for seq, due_ns, attempts in note["messages"]}
    backlog = channel.backlog
    ranges = [part for one in ranges_of(sorted(defer)) for part in backlog.unfinished(*one)]
    # All at once: one by one it would take minutes when a million messages are deferred.
    backlog.take_out(ranges)
    for seq in [seq for start, end in ranges for seq in range(start, end)]:
        due_ns, attempts = defer[seq]
        if attempts:
            backlog.attempts[seq] = attempts
        backlog.defer(seq, seq + 1, due_ns - offset_ns)


def _seek(topic: Topic, channel: Channel, note: dict[str, Any]) -> None:
    seeking.seek(topic, channel, note["sequence"], _ranges(note["pending"]), note["generation"])


def _finish(topic: Topic, channel: Channel, note: dict[str, Any]) -> None:
    channel.merge_finished(_ranges(note["sequences"]), topic.log.next_seq)


def _ranges(noted: Iterable[Sequence[int]]) -> Ranges:
    return [(start, end) for start, end in noted]


_ON_TOPIC: Final[dict[str, Callable[[Topic, dict[str, Any]], None]]] = {
    CREATE: lambda _topic, _note: None,
    PAUSE: lambda topic, _note: _pause(topic),
    UNPAUSE: _unpause_topic,
    EMPTY: lambda topic, note: topic.empty(note.get("sequence", 0)),
    HOLD: _hold,
    FLOW: _flow,
}
_ON_CHANNEL: Final[dict[str, Callable[[Topic, Channel, dict[str, Any]], None]]] = {
    DELETE: _delete,
    PAUSE: lambda _topic, channel, _note: _pause(channel),
    UNPAUSE: _unpause,
    EMPTY: lambda _topic, channel, _note: channel.empty(),
    DEFER: _defer,
    SEEK: _seek,
    FINISH: _finish,
    COMMIT: lambda _topic, channel, note: channel.commit(note["sequence"]),
}
