"""Names of figures in Graphite and addresses of their graphs; PURE."""

import re
from typing import Final
from urllib.parse import urlencode, urlsplit

from nsqadmin.options import NsqadminOptions
from nsqcore.service.durations import SECOND

ALL_HOSTS: Final = "*"

# statsd stores these as counters, everything else as a gauge.
_COUNTERS: Final = frozenset({"requeue_count", "timeout_count", "message_count", "gc_runs"})

_TOPIC_GRAPHS: Final = (("depth", "depth"), ("messages", "message_count"))
_CHANNEL_GRAPHS: Final = (
    *_TOPIC_GRAPHS,
    ("in flight", "in_flight_count"),
    ("deferred", "deferred_count"),
    ("requeued", "requeue_count"),
    ("timed out", "timeout_count"),
    ("consumers", "clients"),
)

_LARGE: Final = (("width", "800"), ("height", "450"), ("from", "-2hours"), ("until", "-1min"))


def host_prefix(options: NsqadminOptions, node: str = ALL_HOSTS) -> str:
    """Return what the keys of *node* begin with, by default those of all nodes."""
    host = node if node == ALL_HOSTS else node.replace(".", "_").replace(":", "_")
    prefix = options.statsd_prefix.replace("%s", host)
    return prefix if not prefix or prefix.endswith(".") else prefix + "."


def clean(name: str) -> str:
    """Write a topic or channel the way statsd stores it."""
    return re.sub(r"[^a-zA-Z0-9_.-]", "", name.replace(" ", "_").replace("/", "-"))


def stored(options: NsqadminOptions, key: str) -> str:
    """Wrap *key* as statsd does for its kind; an empty format leaves it alone."""
    is_counter = key.rpartition(".")[2] in _COUNTERS
    wrapped = options.statsd_counter_format if is_counter else options.statsd_gauge_format
    return wrapped.replace("%s", key) if wrapped else key


def target(
    options: NsqadminOptions, metric: str, topic: str, channel: str = "", node: str = ALL_HOSTS
) -> str:
    """Return Graphite's expression for one figure of a topic or channel."""
    place = f"topic.{clean(topic)}." + (f"channel.{clean(channel)}." if channel else "")
    series = f"sumSeries({stored(options, host_prefix(options, node) + place + metric)})"
    return f'summarize({series},"{options.statsd_interval // SECOND}sec","avg")'


def graph_url(options: NsqadminOptions, expression: str, title: str) -> str:
    """Return where the large graph of *expression* is; through nsqadmin itself when it is a proxy."""
    query = urlencode([("target", expression), ("title", title), *_LARGE])
    if options.proxy_graphite:
        return f"{options.prefix}/render?{query}"
    place = urlsplit(options.graphite_url)
    # A user and password in the address are nsqadmin's, not every reader's.
    host = place.netloc.rpartition("@")[2]
    return f"{place.scheme}://{host}{place.path.rstrip('/')}/render?{query}"


def links(options: NsqadminOptions, topic: str, channel: str = "") -> list[tuple[str, str]]:
    """List the graphs of a topic or channel; none without Graphite."""
    if not options.graphite_url:
        return []
    subject = f"{topic}/{channel}" if channel else topic
    return [
        (name, graph_url(options, target(options, metric, topic, channel), f"{subject} {name}"))
        for name, metric in (_CHANNEL_GRAPHS if channel else _TOPIC_GRAPHS)
    ]
