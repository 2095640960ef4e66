"""Nodes on simulated disks, the first of which has messages that others keep: the start of copy tests."""

import random

from tests.campaign.carried.node import CarryingNode
from tests.campaign.carried.site import CarryingSite


def published(count: int, messages: int = 5, *, replicas: int = 1) -> CarryingSite:
    """Return *count* nodes, with numbered messages in channel `c` of topic `t`, each answered with `OK`."""
    site = CarryingSite(count, random.Random(5), strict=False, replicas=replicas)
    site.nodes[1].channel("t", "c")
    settle(site)
    said: list[str] = []
    for number in range(messages):
        site.nodes[1].publish("t", b"%d" % number).tells.append(said.append)  # type: ignore[attr-defined]
    settle(site)
    assert said == [""] * messages
    return site


def settle(site: CarryingSite, seconds: int = 4) -> None:
    """Let time pass and every frame arrive."""
    for _ in range(seconds):
        site.advance(1)
        site.settle()


def has(node: CarryingNode) -> bytes:
    """Return the bodies that a consumer of the channel gets at that node without answering."""
    reader = node.read("t", "c", 100)
    return b"".join(body for _, body in reader.take())
