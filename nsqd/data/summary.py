"""``nsqd-data summary``: the content of a data path, and the pending messages of each channel."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from nsqd.data.opened import OpenedDataPath, OpenedTopic
from nsqd.engine.backlog import Backlog
from nsqd.log.frames import Block
from nsqd.log.gaps import CannotRead
from nsqd.log.segment import Segment
from nsqd.storage.topic_log import TopicLog


def summaries(opened: OpenedDataPath, topic: str = "") -> Iterator[dict[str, Any]]:
    """One summary for each topic. Raises DataPathRefused."""
    for name in opened.choose(topic):
        yield summary(opened.topic(name))
        opened.release(name)


def summary(one: OpenedTopic) -> dict[str, Any]:
    topic, store = one.topic, one.store
    return {
        "topic": topic.name,
        "paused": topic.paused,
        "size": store.segments.size,
        "extents": [{"first": first, "end": end} for first, end in store.segments.extents()],
        "gaps": [
            {"first": gap.start, "end": gap.end, "why": gap.why.value} for gap in store.segments.losses()
        ],
        "checkpoint": None
        if one.state is None
        else {
            "serial": one.state.serial,
            "next": one.state.checkpoint_position.next,
            "synced": one.state.checkpoint_position.synced,
        },
        "pending": _backlog(topic.backlog),
        "channels": [
            {
                "channel": channel.name,
                **_backlog(channel.backlog),
                "paused": channel.paused,
                "committed": channel.committed,
            }
            for channel in topic.channels.values()
        ],
        "segments": [_segment(store, segment) for segment in store.segments],
    }


def _backlog(backlog: Backlog) -> dict[str, Any]:
    return {
        "waiting": backlog.pending.count,
        "deferred": backlog.deferred.count,
        "delivered_before": len(backlog.attempts),
        "lowest": backlog.lowest(),
        "next_due": _time(backlog.deferred.first_due_ns()) if backlog.deferred.count else None,
    }


def _segment(store: TopicLog, segment: Segment) -> dict[str, Any]:
    return {
        "file": segment.path.name,
        "first": segment.first,
        "end": segment.next,
        "messages": segment.messages,
        "size": segment.size,
        "compacted": bool(segment.header.ends),
        "origin": segment.header.origin,
        "from": _published(store, segment.first),
        "to": _published(store, segment.next - 1),
    }


def _published(store: TopicLog, seq: int) -> str | None:
    """When a message was published; None when it cannot be read or does not exist."""
    try:
        found = store.segments.read(seq, seq + 1)
    except CannotRead:
        return None
    return _time(found.timestamp_ns(seq)) if isinstance(found, Block) else None


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def text(found: dict[str, Any]) -> Iterator[str]:
    """The lines of a summary for people."""
    paused = ", paused" if found["paused"] else ""
    messages = sum(segment["messages"] for segment in found["segments"])
    yield f"topic {found['topic']}{paused}: {_messages(messages)}, {found['size']} bytes"
    if found["pending"]["waiting"] or found["pending"]["deferred"] or not found["channels"]:
        yield f"  no channel yet: {_backlog_text(found['pending'])}"
    for channel in found["channels"]:
        paused = ", paused" if channel["paused"] else ""
        yield f"  channel {channel['channel']}{paused}: {_backlog_text(channel)}"
    for segment in found["segments"]:
        compacted = ", compacted" if segment["compacted"] else ""
        yield (
            f"  {segment['file']}: {segment['first']}..{segment['end']}, {_messages(segment['messages'])}, "
            f"{segment['size']} bytes, published {segment['from']} to {segment['to']}{compacted}"
        )
    for gap in found["gaps"]:
        yield f"  gap {gap['first']}..{gap['end']}: {gap['why']}"


def _backlog_text(backlog: dict[str, Any]) -> str:
    parts = [f"{backlog['waiting']} waiting", f"{backlog['deferred']} deferred"]
    if backlog["delivered_before"]:
        parts.append(f"{backlog['delivered_before']} delivered before")
    if backlog["next_due"]:
        parts.append(f"next due {backlog['next_due']}")
    return ", ".join(parts)


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="milliseconds")
