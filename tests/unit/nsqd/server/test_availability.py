import pytest

from nsqd.server.availability import Availability
from nsqd.server.health import Health
from tests.support.engine import Node


class Replicas:
    """Replication that lacks replicas while *missing* is a reason."""

    missing = ""

    @property
    def primary(self):
        return self

    def refusal(self):
        return self.missing


@pytest.mark.parametrize(
    ("failure", "draining", "missing", "obstacle"),
    [
        ("", False, "", ("", "")),
        ("no space left", False, "", ("unhealthy", "no space left")),
        ("", False, "0 of 1 replicas are in sync", ("replicas", "0 of 1 replicas are in sync")),
        ("no space left", True, "0 of 1 replicas are in sync", ("draining", "draining")),
    ],
)
def test_obstacle_names_first_reason_why_no_publishes_are_taken(failure, draining, missing, obstacle):
    broker, health, replicas = Node().broker, Health(), Replicas()
    if failure:
        health.failed("metadata", failure)
    broker.draining, replicas.missing = draining, missing

    assert Availability(broker, health, replicas).obstacle() == obstacle
