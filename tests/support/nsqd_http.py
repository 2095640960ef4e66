"""What tests do with the HTTP interface of an nsqd: set a policy, read statistics and metrics."""

import json
import re
from typing import Any
from urllib.parse import quote

from tests.support.processes import Daemon


def set_policy(
    nsqd: Daemon,
    topic: str,
    *,
    name: str = "p",
    channel: str = "",
    priority: int = 0,
    apply: bool = False,
    **definition: Any,
) -> None:
    """Set a policy for the topics and channels that match; with *apply* also if it drops messages."""
    policy = {"topic": topic, "channel": channel, "priority": priority, "definition": definition}
    query = f"name={name}&apply=true" if apply else f"name={name}"
    status, answer = nsqd.request("PUT", f"/policies?{query}", json.dumps(policy).encode())
    assert status == 200, answer


def metrics(nsqd: Daemon) -> dict[str, float]:
    """Return the values of /metrics by name with labels."""
    _, text = nsqd.request("GET", "/metrics")
    found = re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", text.decode(), re.MULTILINE)
    return {name: float(value) for name, value in found}


def topic_stats(nsqd: Daemon, topic: str) -> dict[str, Any] | None:
    """Return the statistics of a topic, or None if there is no such topic."""
    found = nsqd.get(f"/stats?format=json&topic={quote(topic)}")["topics"] or [None]
    return found[0]


def channel_stats(nsqd: Daemon, topic: str, channel: str | None = None) -> dict[str, Any]:
    """Return the statistics of a channel, or of the only channel."""
    found = topic_stats(nsqd, topic)
    if found is None:
        raise LookupError(f"there is no topic {topic}")
    (only,) = [one for one in found["channels"] if channel in (None, one["channel_name"])]
    return only
