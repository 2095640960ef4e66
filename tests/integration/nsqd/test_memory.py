"""What nsqd keeps in memory, seen from outside."""

import pytest

from tests.support.processes import Cluster
from tests.support.waiting import wait_until
from tests.support.wire import mpub

MIB = 1 << 20


@pytest.fixture
def nsqd(tmp_path):
    """An nsqd of its own: the memory of the shared one is everybody's."""
    cluster = Cluster(tmp_path / "cluster")
    yield cluster.nsqd()
    cluster.close()


def resident(nsqd):
    return nsqd.get("/stats?format=json&topic=none")["memory"]["heap_in_use_bytes"]


def test_a_deleted_topic_is_forgotten_also_while_its_producers_live(nsqd, connect):
    producers = [connect(nsqd) for _ in range(2)]

    def publish_and_delete(topic):
        for producer in producers:
            producer.ask(mpub(topic, *[b"x" * MIB] * 4))
        nsqd.post(f"/topic/delete?topic={topic}")

    publish_and_delete("first")
    before = resident(nsqd)
    for n in range(20):
        publish_and_delete(f"topic{n}")

    # Each has 8 MiB in memory, until the fsync that knows it has ended.
    wait_until(lambda: resident(nsqd) < before + 40 * MIB, "the deleted topics are forgotten")
