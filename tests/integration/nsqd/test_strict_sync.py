"""``--sync-every=1``: an OK comes after the fsync, replies keep their order, publishers share a sync."""

import threading

import pytest

from tests.support.nsqd_http import metrics
from tests.support.processes import Cluster
from tests.support.wire import Wire, mpub, pub


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("strict") / "cluster")
    yield cluster.nsqd("--sync-every=1")
    cluster.close()


def syncs(nsqd):
    return metrics(nsqd)["nsqd_fsyncs_total"]


def test_every_way_of_publishing_is_answered_after_sync(strict, connect, topic):
    wire = connect(strict)
    for publish in (
        lambda: wire.publish(topic, b"m"),
        lambda: wire.ask(mpub(topic, b"a", b"b")),
        lambda: strict.post(f"/pub?topic={topic}", b"m"),
        lambda: strict.post(f"/mpub?topic={topic}", b"a\nb"),
    ):
        before = syncs(strict)
        publish()
        assert syncs(strict) > before


def test_many_publishers_share_their_syncs(strict, connect, topic):
    publishers, each = 16, 25
    wires = [connect(strict) for _ in range(publishers)]
    before = syncs(strict)

    def publish(wire: Wire) -> None:
        for n in range(each):
            wire.publish(topic, b"%d" % n)

    threads = [threading.Thread(target=publish, args=(wire,)) for wire in wires]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (found,) = strict.get(f"/stats?format=json&topic={topic}")["topics"]
    assert found["message_count"] == publishers * each
    assert syncs(strict) - before < publishers * each


def test_acknowledged_messages_survive_crash(cluster, connect):
    nsqd = cluster.nsqd("--sync-every=1")
    wire = connect(nsqd)
    wire.send(*[pub(f"t{n}", b"m") for n in range(20)])
    wire.ok(20)
    nsqd.kill()
    nsqd.start()
    topics = nsqd.get("/stats?format=json")["topics"]
    assert {topic["topic_name"]: topic["depth"] for topic in topics} == {f"t{n}": 1 for n in range(20)}


def test_it_stops_in_order_while_publishers_wait(cluster, connect):
    nsqd = cluster.nsqd("--sync-every=1")
    wires = [connect(nsqd) for _ in range(10)]
    for wire in wires:
        wire.send(*[pub("t", b"%d" % n) for n in range(50)])
    wires[0].ok()
    assert nsqd.stop() == 0
    acknowledged = sum(wire.rest().count(b"\0\0\0\x06\0\0\0\0OK") for wire in wires)
    nsqd.start()
    (found,) = nsqd.get("/stats?format=json")["topics"]
    assert found["depth"] > acknowledged
