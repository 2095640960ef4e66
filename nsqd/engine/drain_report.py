"""The remaining messages of a drain, and why some of them will not go: judges ``GET /drain``. Pure.

Both nsqd and the command that drains use it, so it knows only that answer and nothing of the engine.
"""

from typing import Any, Final

_NAMED: Final = 5

State = dict[str, Any]


def stuck(state: State, poll_ms: int, left_ms: int) -> bool:
    """Return whether waiting is useless: messages remain, and none of them can go.

    A consumer that polls for topics every *poll_ms* may still find messages without a reader; *left_ms*
    is the time the drain may still take.
    """
    things = [thing for topic in state["topics"] for thing in _things(topic)]
    return bool(things) and all(_obstacle(thing, poll_ms, left_ms) for thing in things)


def sentence(state: State, poll_ms: int = 0, left_ms: int = 0) -> str:
    """List the remaining messages and the reason for each, the largest first."""
    parts = [
        (thing["remaining"], f"{thing['remaining']} of {thing['name']}{_obstacle(thing, poll_ms, left_ms)}")
        for topic in state["topics"]
        for thing in _things(topic)
    ]
    parts.sort(key=lambda part: -part[0])
    named = [text for _, text in parts[:_NAMED]]
    if len(parts) > _NAMED:
        named.append(f"{len(parts) - _NAMED} more")
    count = state["remaining"]
    return f"{count} message{'' if count == 1 else 's'} remain{'s' if count == 1 else ''}: {'; '.join(named)}"


def _things(topic: State) -> list[State]:
    """List the parts that can be emptied separately: the topic's own messages, and each channel."""
    things = [
        {**channel, "name": f"{topic['topic_name']}/{channel['channel_name']}"}
        for channel in topic["channels"]
    ]
    if topic["backlog"]:
        things.append({**topic, "name": topic["topic_name"], "remaining": topic["backlog"]})
    return things


def _obstacle(thing: State, poll_ms: int, left_ms: int) -> str:
    """The reason why these messages remain, as the end of a sentence; empty when they may still go."""
    if thing["paused"]:
        return ", which is paused"
    unread_ms = thing["unread_ms"]
    if unread_ms is not None and unread_ms >= poll_ms:
        if "channel_count" in thing:
            return ", which has no channel to drain to"
        return ", which has no consumer"
    due_in_ms = thing.get("due_in_ms")
    if due_in_ms is not None and due_in_ms > left_ms:
        return f", deferred for another {_duration_text(due_in_ms)}"
    return ""


def _duration_text(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    return f"{seconds}s" if seconds < 120 else f"{seconds // 60}m"
