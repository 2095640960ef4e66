"""The records of topics and channels in the JSON API: the same keys as NSQ's, lists never null; PURE.

One record serves a node's statistics and the total over nodes. A total has ``node`` "*" and lists the
records of its nodes.
"""

from typing import Any

from nsqadmin.stats.records import LatencyRecord
from nsqadmin.stats.sums import ChannelSum, TopicSum

JsonObject = dict[str, Any]


def topic_record(topic: TopicSum, *, lists: bool = True) -> JsonObject:
    """Return the record of a topic, without nodes and channels unless *lists*."""
    shown: JsonObject = {
        "node": topic.node,
        "hostname": topic.hostname,
        "topic_name": topic.name,
        "depth": topic.own_depth,
        "memory_depth": topic.own_memory_depth,
        "backend_depth": topic.own_backend_depth,
        "message_count": topic.message_count,
        # Deliveries are counted on channels only, but the key is part of the original's record.
        "delivery_msg_count": 0,
    }
    if lists:
        shown["nodes"] = [topic_record(part) for part in topic.parts]
        shown["channels"] = [channel_record(channel) for channel in topic.channels]
    return shown | {
        "paused": topic.paused,
        "e2e_processing_latency": (topic.latency or LatencyRecord()).to_json(),
    }


def channel_record(channel: ChannelSum, *, lists: bool = True) -> JsonObject:
    """Return the record of a channel, without nodes and consumers unless *lists*."""
    delivered = {
        "delivery_msg_count": channel.delivery_msg_count,
        "zone_local_msg_count": channel.zone_local_msg_count,
        "region_local_msg_count": channel.region_local_msg_count,
        "global_msg_count": channel.global_msg_count,
    }
    shown: JsonObject = {
        "node": channel.node,
        "hostname": channel.hostname,
        "topic_name": channel.topic_name,
        "channel_name": channel.channel_name,
        "depth": channel.depth,
        "memory_depth": channel.memory_depth,
        "backend_depth": channel.backend_depth,
        "in_flight_count": channel.in_flight_count,
        "deferred_count": channel.deferred_count,
        "requeue_count": channel.requeue_count,
        "timeout_count": channel.timeout_count,
        "message_count": channel.message_count,
        **{key: count for key, count in delivered.items() if count},
        "client_count": channel.client_count,
    }
    if lists:
        shown["nodes"] = [channel_record(part) for part in channel.parts]
        shown["clients"] = [client.to_json() for client in channel.clients]
    return shown | {
        "paused": channel.paused,
        "e2e_processing_latency": (channel.latency or LatencyRecord()).to_json(),
    }
