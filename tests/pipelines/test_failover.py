"""A query loses an nsqd that had a replica: each message that was stored before the loss is read once."""

import shutil
from collections import Counter

import pytest

from pyspark_nsq.source.batch_reader import NsqBatchReader
from tests.pipelines.broken import Case, batch
from tests.pipelines.conftest import Nodes, bounds
from tests.support.replicated import caught_up, copies, empty_path, identity, nodes, replica_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

COUNT = 300


class Failover(Case):
    """Two nsqd that are replicas of each other, with a topic that a query reads."""

    def __init__(self, cluster):
        lookupd = cluster.nsqlookupd("--reconnect-interval=1ms")
        self.first, self.second = nodes(cluster, 2, f"--lookupd-tcp-address={lookupd.tcp_address}")
        self._begin(Nodes.of(cluster, lookupd, [self.first, self.second]))
        self.query.options["startingOffsets"] = "earliest"
        self.publish(0, COUNT)

    def lose_first(self):
        """Kill the first nsqd and remove its data path; wait until the other one has promoted its copy."""
        caught_up(self.first)
        lost = identity(self.first)
        self.first.kill()
        empty_path(self.first)
        wait_until(
            lambda: lost in bounds(self.second, "t")["promoted"], "its replica is promoted", seconds=60
        )
        return lost


@pytest.fixture
def failover(cluster):
    return Failover(cluster)


@pytest.mark.parametrize(
    ("state", "forgotten"),
    [("new", False), ("in a backlog", False), ("planned", False), ("stored", False), ("stored", True)],
)
def test_query_reads_each_message_once_after_replica_took_over(failover, state, forgotten):
    query = failover.query
    if state == "in a backlog":
        assert query.run(limit=200, batches=2) == ""
    elif state != "new":
        assert query.run(limit=200, die=state) == "killed"
    failover.lose_first()
    failover.publish(COUNT, 10, [failover.second])
    options = {"forgetNsqds": failover.first.http_address} if forgotten else {}

    assert [query.run(limit=200, **options), query.run()] == ["", ""]
    failover.exact()


def test_query_continues_after_finished_copy_is_dropped(failover):
    query, second = failover.query, failover.second
    assert query.run(limit=200, batches=2) == ""
    lost = failover.lose_first()
    assert [query.run(), query.run()] == ["", ""]
    # nsqd drops a finished copy when every holder of the log knows that; here it is removed by hand.
    second.stop()
    shutil.rmtree(second.folder / "owned")
    second.start()
    failover.publish(COUNT, 10, [second])
    assert lost not in bounds(second, "t")["promoted"]

    assert query.run() == ""
    failover.exact()


def test_query_waits_for_failover_if_retry_seconds_are_longer(failover):
    query = failover.query
    assert query.run(limit=200, batches=2) == ""
    caught_up(failover.first)
    lost = identity(failover.first)
    failover.first.kill()
    empty_path(failover.first)
    assert lost not in bounds(failover.second, "t")["promoted"]

    assert query.run(retryTimeout="60") == ""
    failover.exact()


def test_query_continues_when_lost_nsqd_comes_back_empty(failover):
    query = failover.query
    assert query.run(limit=200, batches=2) == ""
    failover.lose_first()
    failover.first.start()
    failover.publish(COUNT, 20)

    assert [query.run(), query.run()] == ["", ""]
    failover.exact()


def test_batch_read_has_messages_of_promoted_copies(failover):
    failover.lose_first()

    assert Counter(batch(failover)) == failover.published
    reader = NsqBatchReader(failover.nodes.parsed("t", channel=""))
    names = {partition.value.producer for partition in reader.partitions()}
    assert len({name.partition("#")[0] for name in names}) == 1
    assert len(names) == 2


def test_query_continues_after_decommission(failover):
    query = failover.query
    assert query.run(limit=200, batches=2) == ""
    assert replica_of(failover.first, [failover.second]) is failover.second
    lost = identity(failover.first)
    failover.first.post(f"/decommission?target={failover.second.tcp_address}&fewer_copies=true")
    wait_until(lambda: failover.first.get("/decommission")["done"], "it is decommissioned", seconds=60)
    failover.first.stop()
    assert "promoted" in [one["state"] for one in copies(failover.second, lost)]
    failover.publish(COUNT, 10, [failover.second])

    assert [query.run(), query.run()] == ["", ""]
    failover.exact()
