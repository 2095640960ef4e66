"""What nsqd keeps in memory, seen from outside."""

import pytest

from tests.support.processes import Cluster
from tests.support.waiting import wait_until
from tests.support.wire import mpub, pub

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


def test_deleted_topics_leave_the_memory_also_once_their_checkpoints_were_written(nsqd, connect):
    """What was to be added to the next checkpoint held the channels, they the log: 8 MiB of each topic."""

    def fill_and_delete(name):
        """Returns what is resident while the topics are there."""
        topics = [f"{name}{n}" for n in range(8)]
        # Each stays, and knows its topic.
        producers = [connect(nsqd) for _ in topics]
        for topic in topics:
            nsqd.post(f"/topic/create?topic={topic}")
            nsqd.post(f"/channel/create?topic={topic}&channel=c")
        for number in range(3):
            for producer, topic in zip(producers, topics, strict=True):
                producer.ask(mpub(topic, *[b"x" * MIB] * 4))
                producer.ask(pub(topic, b"x"))
            if number < 2:
                files = [nsqd.folder / f"{topic}.topic" / f"checkpoint.{number}" for topic in topics]
                wait_until(lambda files=files: all(file.exists() for file in files), f"checkpoint {number}")
        most = resident(nsqd)
        for topic in topics:
            nsqd.post(f"/topic/delete?topic={topic}")
        return most

    # What is free again need not be given back to the system, but it is used again.
    first, *later = [fill_and_delete(name) for name in ("one", "two", "three", "four")]

    assert max(later) < first + 8 * 8 * MIB
