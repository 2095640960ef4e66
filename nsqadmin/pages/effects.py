"""The effects of an action, in the sentences of its confirmation; PURE."""

from collections.abc import Sequence

from nsqadmin.figures.present import plural
from nsqadmin.figures.records import ChannelRecord, TopicRecord

# A sentence has at most so many names.
_MOST_NAMES = 8


def topic_effects(action: str, topic: TopicRecord) -> list[str]:
    nodes = f"on {plural(len(topic.nodes), 'nsqd')}"
    channels = plural(len(topic.channels), "channel")
    waiting = plural(topic.depth, "message")
    match action:
        case "pause":
            return [
                f"Messages stay in the topic {nodes}; its {channels} get no new ones until it is resumed.",
                "Publishers are not affected.",
            ]
        case "unpause":
            return [f"What waits in the topic {nodes} ({waiting}) goes on to its {channels}."]
        case "empty":
            return [
                f"What waits in the topic {nodes} ({waiting}) is permanently deleted.",
                f"What its {channels} already hold stays.",
            ]
    owed = topic.depth + sum(channel.owed for channel in topic.channels)
    return [
        f"The topic is removed from {plural(len(topic.nodes), 'nsqd')}, with {_named(channels, topic)}.",
        f"What is not finished yet ({plural(owed, 'message')}) is permanently deleted.",
        cut_off(topic.client_count),
        "A publisher that goes on will create it again.",
    ]


def channel_effects(action: str, channel: ChannelRecord) -> list[str]:
    nodes = f"on {plural(len(channel.nodes), 'nsqd')}"
    consumers = plural(channel.client_count, "consumer")
    waiting = plural(channel.depth, "message")
    match action:
        case "pause":
            return [
                f"Delivery to {consumers} {nodes} stops until the channel is resumed.",
                f"Waiting and new messages are kept ({waiting}).",
            ]
        case "unpause":
            return [f"{waiting} waiting will be delivered to {consumers}."]
        case "empty":
            parts = (
                f"{channel.depth:,} waiting, {channel.in_flight_count:,} in flight,"
                f" {channel.deferred_count:,} deferred"
            )
            return [
                f"{plural(channel.owed, 'message')} {nodes} ({parts}) will be permanently deleted.",
                f"Connections stay: {consumers}.",
            ]
    return [
        f"The channel is removed from {plural(len(channel.nodes), 'nsqd')}.",
        f"What is not finished yet ({plural(channel.owed, 'message')}) is permanently deleted.",
        cut_off(channel.client_count),
        "A consumer that subscribes again will create it again, empty.",
    ]


def tombstone_effects(node: str, held: list[TopicRecord]) -> list[str]:
    """Describe a tombstone; *held* is the topic on that node, or empty."""
    hidden = f"No nsqlookupd sends consumers of this topic to {node} for a while (45 s by default)."
    if not held:
        return [hidden, "The node does not hold the topic now."]
    topic = held[0]
    owed = topic.depth + sum(channel.owed for channel in topic.channels)
    return [
        hidden,
        f"Then the topic is deleted there, with what is not finished yet ({plural(owed, 'message')}).",
        cut_off(topic.client_count),
        "Move its publishers to another node first, or they will create it here again.",
    ]


def silent_effects(silent: Sequence[str]) -> list[str]:
    """Describe what happens on nodes that hold the topic and do not answer, or are not registered."""
    if not silent:
        return []
    names = ", ".join(silent[:_MOST_NAMES])
    more = f" and {len(silent) - _MOST_NAMES} more" if len(silent) > _MOST_NAMES else ""
    one = len(silent) == 1
    who = "1 nsqd that holds it is" if one else f"{len(silent)} nsqds that hold it are"
    return [f"{who} not reached ({names}{more}): nothing changes there, unless the request arrives late."]


def cut_off(consumers: int) -> str:
    """Say how many consumers lose their connection."""
    return (
        f"{plural(consumers, 'consumer')} will be disconnected." if consumers else "No consumer is connected."
    )


def _named(channels: str, topic: TopicRecord) -> str:
    names = [channel.channel_name for channel in topic.channels]
    if not names:
        return "no channel"
    shown = ", ".join(names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{channels} ({shown}{more})"
