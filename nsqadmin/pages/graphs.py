"""Names of metrics in Graphite and addresses of their graphs; PURE."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode, urlsplit

from nsqadmin.options import NsqadminOptions
from nsqclient.wire.durations import SECOND

# A host and port without characters that would break a content security policy.
_HOST: Final = re.compile(r"[A-Za-z0-9.:\[\]-]+")

# statsd stores these as counters, all other metrics as gauges.
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

# Time frames that a reader can choose, as in the original; "off" shows no graphs.
FRAMES: Final = ("1h", "2h", "12h", "24h", "48h", "168h", "off")
_USUAL_FRAME: Final = "2h"

_LARGE: Final = (("width", "800"), ("height", "450"))
_SMALL: Final = (
    ("width", "120"),
    ("height", "20"),
    ("hideGrid", "true"),
    ("hideLegend", "true"),
    ("hideAxes", "true"),
    ("bgcolor", "ff000000"),
    ("margin", "0"),
    ("yMin", "0"),
    ("lineMode", "connected"),
    ("drawNullAsZero", "false"),
)


def host_prefix(options: NsqadminOptions) -> str:
    """Return the prefix of the keys of all nodes."""
    prefix = options.statsd_prefix.replace("%s", "*")
    return prefix if not prefix or prefix.endswith(".") else prefix + "."


def clean(name: str) -> str:
    """Write the name of a topic or channel as statsd stores it."""
    return re.sub(r"[^a-zA-Z0-9_.-]", "", name.replace(" ", "_").replace("/", "-"))


def stored(options: NsqadminOptions, key: str) -> str:
    """Wrap *key* as statsd does for its kind; an empty format leaves it unchanged."""
    is_counter = key.rpartition(".")[2] in _COUNTERS
    wrapped = options.statsd_counter_format if is_counter else options.statsd_gauge_format
    return wrapped.replace("%s", key) if wrapped else key


def target(options: NsqadminOptions, metric: str, topic: str, channel: str = "") -> str:
    """Return Graphite's expression for one metric of a topic or channel."""
    place = f"topic.{clean(topic)}." + (f"channel.{clean(channel)}." if channel else "")
    series = f"sumSeries({stored(options, host_prefix(options) + place + metric)})"
    return f'summarize({series},"{options.statsd_interval // SECOND}sec","avg")'


@dataclass(frozen=True, slots=True)
class Graph:
    """A metric in Graphite: its name, the address of a picture as high as a line, and of the large one."""

    name: str
    picture: str
    large: str


def frame_of(wanted: str) -> str:
    """Return the time frame *wanted*, or the usual one if it is unknown."""
    return wanted if wanted in FRAMES else _USUAL_FRAME


def origin(options: NsqadminOptions) -> str:
    """Return another origin of pictures, for the content security policy; empty if there is none."""
    if not options.graphite_url or options.proxy_graphite:
        return ""
    place = urlsplit(options.graphite_url)
    host = place.netloc.rpartition("@")[2]
    return f"{place.scheme}://{host}" if _HOST.fullmatch(host) else ""


def graphs_of(options: NsqadminOptions, topic: str, channel: str = "", frame: str = "") -> list[Graph]:
    """List the graphs of a topic or channel over a time frame; none without Graphite."""
    frame = frame_of(frame)
    if not options.graphite_url or frame == "off":
        return []
    subject = f"{topic}/{channel}" if channel else topic
    found = []
    for name, metric in _CHANNEL_GRAPHS if channel else _TOPIC_GRAPHS:
        expression = target(options, metric, topic, channel)
        when = (("from", f"-{frame}"), ("until", "-1min"))
        found.append(
            Graph(
                name,
                _url(options, [("target", expression), *_SMALL, *when]),
                _url(options, [("target", expression), ("title", f"{subject} {name}"), *_LARGE, *when]),
            )
        )
    return found


def _url(options: NsqadminOptions, arguments: list[tuple[str, str]]) -> str:
    """Return the address of a picture, which is nsqadmin's own if it is a proxy."""
    query = urlencode(arguments)
    if options.proxy_graphite:
        return f"{options.prefix}/render?{query}"
    place = urlsplit(options.graphite_url)
    # A user and password in the address are for nsqadmin, and must not be shown to readers.
    host = place.netloc.rpartition("@")[2]
    return f"{place.scheme}://{host}{place.path.rstrip('/')}/render?{query}"
