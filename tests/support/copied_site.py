"""Nodes on simulated disks, the first of which has messages that others keep: where tests of copies begin."""

import random

from tests.campaign.carried.node import CarryingNode
from tests.campaign.carried.site import CarryingSite


def published(count: int, messages: int = 5, *, replicas: int = 1) -> CarryingSite:
    """So many nodes; the bodies are numbers, in channel `c` of topic `t`, and each was answered with `OK`."""
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
    """Time passes, and all that is said arrives."""
    for _ in range(seconds):
        site.advance(1)
        site.settle()


def has(node: CarryingNode) -> bytes:
    """What a consumer of the channel is given at that node, who answers nothing."""
    reader = node.read("t", "c", 100)
    return b"".join(body for _, body in reader.take())
