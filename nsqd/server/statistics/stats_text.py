"""The text form of /stats, column for column as the original prints it."""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from nsqclient.wire.durations import SECOND
from nsqcore.durations import format_duration
from nsqd.build import nsqd_banner

_UNITS: Final = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))


def render(stats: dict[str, Any], now_ns: int) -> Iterator[str]:
    """Yield the text of a :meth:`StatsReport.snapshot`, a topic or client at a time."""
    started = stats["start_time"]
    lines = [
        nsqd_banner(),
        f"start_time {datetime.fromtimestamp(started).astimezone().isoformat().replace('+00:00', 'Z')}",
        f"uptime {format_duration(now_ns - started * SECOND)}",
        "",
        f"Health: {stats['health']}",
    ]
    if "memory" in stats:
        lines += ["", "Memory:"]
        lines += [f"   {name:<25}\t{value}" for name, value in stats["memory"].items()]
    yield "\n".join(lines) + "\n\n"
    yield "Topics:" if stats["topics"] else "Topics: None\n"
    for topic in stats["topics"] or ():
        yield _topic(topic) + "\n"
    yield "\nProducers:\n" if stats["producers"] else "\nProducers: None\n"
    for client in stats["producers"] or ():
        yield f"   {_client(client)}\n"


def _topic(topic: dict[str, Any]) -> str:
    lines = [
        (
            f"\n{_indent(3, topic)}[{topic['topic_name']:<15}] depth: {topic['depth']:<5} "
            f"be-depth: {topic['backend_depth']:<5} msgs: {topic['message_count']:<8} e2e%: {_latency(topic)}"
        )
    ]
    for channel in topic["channels"]:
        lines.append(
            f"{_indent(6, channel)}[{channel['channel_name']:<25}] depth: {channel['depth']:<5} "
            f"be-depth: {channel['backend_depth']:<5} inflt: {channel['in_flight_count']:<4} "
            f"def: {channel['deferred_count']:<4} re-q: {channel['requeue_count']:<5} "
            f"timeout: {channel['timeout_count']:<5} msgs: {channel['message_count']:<8} "
            f"e2e%: {_latency(channel)}"
        )
        lines += [f"        {_client(client)}" for client in channel["clients"] or ()]
    return "\n".join(lines)


def _indent(width: int, item: dict[str, Any]) -> str:
    return " " * (width - 3) + ("*P " if item["paused"] else "   ")


def _client(client: dict[str, Any]) -> str:
    port = client["remote_address"].rpartition(":")[2]
    name = f"{client['hostname']}:{port} {client['user_agent']}"
    head = f"[{client['version']} {name:<21}]"
    connected = format_duration((int(time.time()) - client["connect_ts"]) * SECOND)
    if client.get("pub_counts"):
        total = sum(count["count"] for count in client["pub_counts"])
        topics = ", ".join(f"{count['topic']}={count['count']}" for count in client["pub_counts"])
        return f"{head} msgs: {total:<8} topics: {topics} connected: {connected}"
    return (
        f"{head} state: {client['state']} inflt: {client['in_flight_count']:<4} "
        f"rdy: {client['ready_count']:<4} fin: {client['finish_count']:<8} "
        f"re-q: {client['requeue_count']:<8} "
        f"msgs: {client['message_count']:<8} connected: {connected}"
    )


def _latency(item: dict[str, Any]) -> str:
    percentiles = item["e2e_processing_latency"]["percentiles"] or ()
    return ", ".join(_human(entry["value"]) for entry in percentiles)


def _human(value_ns: float) -> str:
    for size, unit in _UNITS:
        if value_ns > size:
            return f"{value_ns / size:.1f}{unit}"
    return f"{value_ns:.1f}ns"
