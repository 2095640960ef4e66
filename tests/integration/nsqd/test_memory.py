"""The memory of nsqd, measured from outside."""

import pytest

from tests.support.waiting import wait_until
from tests.support.wire import mpub, pub

MIB = 1 << 20


@pytest.fixture
def nsqd(cluster):
    """A separate nsqd, because all tests use the memory of the shared one."""
    return cluster.nsqd()


def resident(nsqd):
    return nsqd.get("/stats?format=json&topic=none")["memory"]["heap_in_use_bytes"]


def test_deleted_topics_leave_memory_also_once_their_checkpoints_were_written(nsqd, connect):
    """Data for the next checkpoint once kept the channels in memory, and they the log: 8 MiB a topic."""

    def fill_and_delete(name):
        """Fill topics and delete them; return the memory in use while they exist."""
        topics = [f"{name}{n}" for n in range(8)]
        # Each producer stays connected, and refers to its topic.
        producers = [connect(nsqd) for _ in topics]
        for topic in topics:
            nsqd.create(topic, "c")
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

    # Free memory need not be given back to the system, but it must be used again.
    first, *later = [fill_and_delete(name) for name in ("one", "two", "three")]

    assert max(later) < first + 8 * 8 * MIB
