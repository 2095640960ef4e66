"""A few nodes that are always connected, for small cases of the rules. Time passes only by `Site.advance`."""

import random

from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.log_state import LogState
from nsqd.replication.log_stream import ReplicaSettings
from tests.campaign.replication.node import SimulatedNode
from tests.campaign.replication.site import Site

CHANNEL = "c"
TOPIC = "t"


def site_of(nodes: int, *, replicas: int = 1, failover_s: int = 30, channel: str = CHANNEL) -> Site:
    """Nodes whose logs have one topic with one channel, and which have chosen their replicas.

    An empty *channel* is none; the topic is made by the first publish.
    """
    settings = ReplicaSettings(
        replicas=replicas, catch_up_rate=1 << 30, failover_ns=failover_s * 1_000_000_000
    )
    site = Site(nodes, random.Random(1), settings, is_prompt=True)
    if channel:
        for node in site.nodes.values():
            node.channel(TOPIC, channel)
    site.advance(8)
    return site


def publish(node: SimulatedNode, *bodies: bytes) -> None:
    for body in bodies:
        node.publish(TOPIC, body)
    node.turn()


def take(node: SimulatedNode) -> list[bytes]:
    """The messages that a new consumer gets; it finishes none."""
    reader = node.read(TOPIC, CHANNEL, 100)
    bodies = [body for _, body in reader.take()]
    node.leave(reader)
    return bodies


def finish(node: SimulatedNode) -> list[bytes]:
    """The messages that a new consumer gets and finishes."""
    reader = node.read(TOPIC, CHANNEL, 100)
    found = reader.take()
    for message in list(found):
        node.answer(reader, message, "FIN")
    node.leave(reader)
    return [body for _, body in found]


def log_of(node: SimulatedNode, origin: SimulatedNode | bytes) -> LogState:
    """What a node knows of the log of another."""
    identity = origin if isinstance(origin, bytes) else origin.identity
    return node.replication.logs[identity]


def copies_of(node: SimulatedNode, origin: SimulatedNode | bytes) -> list[LocalCopy]:
    """The copies of the log of another node."""
    identity = origin if isinstance(origin, bytes) else origin.identity
    log = node.replication.logs.get(identity)
    return [] if log is None else [copy for copy in log.copies if not copy.is_origin]
