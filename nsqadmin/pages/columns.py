"""The columns of every list: key, title, shown value, order and filter."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from nsqadmin.changes.audit import AuditEntry
from nsqadmin.collecting.members import Member
from nsqadmin.pages.tables import Column
from nsqadmin.stats.consumers import Consumer
from nsqadmin.stats.present import moment
from nsqadmin.stats.sums import ChannelSum, TopicSum
from nsqadmin.stats.trend import Trend

_IN: Final = "messages into the channel each second"
_FINISHED: Final = "messages finished each second"
_MEMORY: Final = "where the waiting messages are: in memory + on disk; sorts by disk"
_OLDEST: Final = "age of the oldest message that waits in a channel"
_WORST: Final = "most urgent first"


def _rate(trend: Trend | None) -> float | None:
    return None if trend is None else trend.messages


def _age(oldest_ns: int) -> float | None:
    """Return the age in seconds; None if no message is pending, or if nsqd does not report it."""
    return max(0.0, time.time() - oldest_ns / 1e9) if oldest_ns > 0 else None


def _finished(trend: Trend | None) -> float | None:
    return None if trend is None else trend.finished


TOPICS: Final[Sequence[Column[TopicSum]]] = (
    Column("name", "Topic", lambda row: row.name, "text"),
    Column("state", "State", lambda row: row.states, "text", keep=True),
    Column("rate", "In / s", lambda row: _rate(row.trend), "rate", "published, over the last ten seconds"),
    Column("out", "Out / s", lambda row: row.finished, "rate", "finished by all its channels", usual=False),
    Column("depth", "Depth", lambda row: row.depth, hint="waiting in it and in its channels", keep=True),
    Column("oldest", "Oldest", lambda row: _age(row.oldest_ns), "seconds", _OLDEST),
    Column(
        "empties", "Time to drain", lambda row: row.empties_s, "seconds", "at the pace of the last seconds"
    ),
    Column("disk", "Memory + disk", lambda row: row.backend_depth, "split", _MEMORY, usual=False),
    Column("in_flight", "In flight", lambda row: row.in_flight, hint="delivered and not yet finished"),
    Column("deferred", "Deferred", lambda row: row.deferred, hint="held back until their time has come"),
    Column("consumers", "Consumers", lambda row: row.consumers),
    Column("nodes", "Nodes", lambda row: row.nodes, hint="nsqds that have it", usual=False),
    Column("messages", "Messages", lambda row: row.message_count, hint="published since the nodes started"),
    Column("channels", "Channels", lambda row: row.channel_names, "text", "names; filter: channels:pay*"),
)

CHANNELS: Final[Sequence[Column[ChannelSum]]] = (
    Column("name", "Channel", lambda row: row.name, "text"),
    Column("state", "State", lambda row: row.states, "text", keep=True),
    Column("in", "In / s", lambda row: _rate(row.trend), "rate", _IN),
    Column("out", "Out / s", lambda row: _finished(row.trend), "rate", _FINISHED),
    Column("depth", "Depth", lambda row: row.depth, keep=True),
    Column("oldest", "Oldest", lambda row: _age(row.oldest_ns), "seconds", _OLDEST),
    Column(
        "empties", "Time to drain", lambda row: row.empties_s, "seconds", "at the pace of the last seconds"
    ),
    Column("disk", "Memory + disk", lambda row: row.backend_depth, "split", _MEMORY),
    Column("in_flight", "In flight", lambda row: row.in_flight_count),
    Column("deferred", "Deferred", lambda row: row.deferred_count),
    Column("requeued", "Requeued", lambda row: row.requeue_count),
    Column("timed_out", "Timed out", lambda row: row.timeout_count),
    Column("messages", "Messages", lambda row: row.message_count),
    Column("consumers", "Consumers", lambda row: row.client_count),
)

# One channel on each of its nodes.
SHARES: Final[Sequence[Column[ChannelSum]]] = (
    Column("name", "nsqd", lambda row: row.node, "text"),
    *(column for column in CHANNELS if column.key not in {"name", "state"}),
)

# One topic on each of its nodes.
TOPIC_NODES: Final[Sequence[Column[TopicSum]]] = (
    Column("name", "nsqd", lambda row: row.node, "text"),
    Column("rate", "In / s", lambda row: _rate(row.trend), "rate", "published, over the last ten seconds"),
    Column("depth", "Depth", lambda row: row.own_depth, hint="waiting in the topic itself"),
    Column(
        "waiting",
        "In channels",
        lambda row: row.depth - row.own_depth,
        hint="waiting in channels",
        keep=True,
    ),
    Column("disk", "Memory + disk", lambda row: row.own_backend_depth, "split", _MEMORY),
    Column("consumers", "Consumers", lambda row: row.consumers),
    Column("messages", "Messages", lambda row: row.message_count),
    Column("channels", "Channels", lambda row: len(row.channels)),
    Column("replicas", "Replicas", lambda row: row.replicas, "text", "in sync, of how many wanted"),
)

NODES: Final[Sequence[Column[Member]]] = (
    Column("name", "Node", lambda row: row.address, "text"),
    Column("state", "State", lambda row: row.states, "text", keep=True),
    Column("urgency", "Urgency", lambda row: row.urgency, hint=_WORST, usual=False),
    Column("rate", "In / s", lambda row: row.load.rate if row.answers and row.load else None, "rate"),
    Column("depth", "Depth", lambda row: row.load.depth if row.load else None, keep=True),
    Column(
        "oldest", "Oldest", lambda row: _age(row.load.oldest_ns) if row.load else None, "seconds", _OLDEST
    ),
    Column("in_flight", "In flight", lambda row: row.load.in_flight if row.load else None),
    Column("deferred", "Deferred", lambda row: row.load.deferred if row.load else None, usual=False),
    Column("consumers", "Consumers", lambda row: row.load.consumers if row.load else None),
    Column("messages", "Messages", lambda row: row.load.messages if row.load else None, usual=False),
    Column("disk", "Disk free", lambda row: row.disk_free, "size", "of the file system of its messages"),
    Column("full", "Full in", lambda row: row.full_in_s, "seconds", "at the pace of now", usual=False),
    Column("fsync", "fsync p99", lambda row: row.fsync_s, "seconds", "of the last 1,000", usual=False),
    Column("tcp", "TCP port", lambda row: row.producer.tcp_port, "port", usual=False),
    Column("version", "Version", lambda row: row.producer.version, "text"),
    Column("zone", "Zone", lambda row: row.zone, "text"),
    Column("listed", "Registered with", lambda row: len(row.producer.remote_addresses), hint="nsqlookupds"),
    Column("topics", "Topics", lambda row: len(row.topic_names)),
    Column(
        "differs", "Registrations", lambda row: row.differences, "text", "unlike what it holds", usual=False
    ),
)

CONSUMERS: Final[Sequence[Column[Consumer]]] = (
    Column("name", "Consumer", lambda row: row.name, "text"),
    Column("channel", "Channel", lambda row: row.place, "text", keep=True),
    Column("address", "Address", lambda row: row.stats.remote_address, "text", keep=True),
    Column("state", "State", lambda row: row.states, "text", keep=True),
    Column("host", "Host", lambda row: row.stats.hostname, "text", usual=False),
    Column("agent", "User agent", lambda row: row.stats.user_agent, "text"),
    Column("attributes", "Attributes", lambda row: row.attributes, "text"),
    Column("node", "nsqd", lambda row: row.client.node, "text"),
    Column("in_flight", "In flight", lambda row: row.stats.in_flight_count, keep=True),
    Column("ready", "Ready", lambda row: row.stats.ready_count),
    Column("rate", "Out / s", lambda row: row.rate, "rate", "messages it finishes each second"),
    Column("silent", "Silent for", lambda row: row.silent_s, "seconds", "since it last finished a message"),
    Column("finished", "Finished", lambda row: row.stats.finish_count),
    Column("requeued", "Requeued", lambda row: row.stats.requeue_count),
    Column("messages", "Messages", lambda row: row.stats.message_count),
    Column("connected", "Connected", lambda row: row.client.connected_ns / 1e9, "seconds"),
)

AUDIT_ENTRIES: Final[Sequence[Column[AuditEntry]]] = (
    Column("name", "When, UTC", lambda entry: moment(entry.at_s), "text"),
    Column("user", "User", lambda entry: entry.user, "text"),
    Column("action", "Action", lambda entry: entry.action_text, "text", keep=True),
    Column("subject", "Target", lambda entry: entry.subject, "text", keep=True),
    Column("result", "Result", lambda entry: entry.result, "text"),
    Column("changed", "Changed", lambda entry: _changed_text(entry.before, entry.after), "text"),
    Column("before", "Before", lambda entry: _state_text(entry.before), "text", usual=False),
    Column("after", "After", lambda entry: _state_text(entry.after), "text", usual=False),
    Column("from", "From", lambda entry: entry.origin, "text"),
    Column("via", "Signed in via", lambda entry: entry.via or "nothing", "text", usual=False),
    Column("ok", "Success", lambda entry: "yes" if entry.ok else "no", "text", usual=False),
)


def _changed_text(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    """Describe the differences: ``depth 60 to 0``, ``paused no to yes``."""
    changed = [key for key in before if key in after and before[key] != after[key]]
    return ", ".join(f"{key} {_word(before[key])} to {_word(after[key])}" for key in changed)


def _word(value: object) -> object:
    return ("no", "yes")[value] if isinstance(value, bool) else value


def _state_text(state: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in state.items())
