import pytest

from nsqd.server.availability import Availability
from nsqd.server.health import Health
from tests.support.engine import Node


@pytest.fixture
def broker():
    return Node().broker


@pytest.fixture
def health():
    return Health()


@pytest.fixture
def refusal():
    return [""]


@pytest.fixture
def availability(broker, health, refusal):
    # It is only asked here; the parts that it tells are tested in test_lookup_peer.py and test_drain.py.
    return Availability(broker, health, lookups=None, refusal=lambda: refusal[0])


def test_node_that_takes_publishes_has_no_obstacle(availability):
    assert availability.obstacle() == ""


def test_disk_that_fails_is_one_until_it_works_again(availability, health):
    health.publish_failed("t", "no space left", 1)
    assert availability.obstacle() == "unhealthy"

    health.publish_worked("t")
    assert availability.obstacle() == ""


def test_drain_is_said_before_anything_else(availability, broker, health):
    health.failed("metadata", "no space left")
    broker.draining = True

    assert availability.obstacle() == "draining"


def test_missing_replicas_are_obstacle(availability, refusal):
    refusal[0] = "0 of 1 replicas are in sync"

    assert availability.obstacle() == "replicas"
