"""An nsqd is decommissioned while a query reads from it."""

from tests.pipelines.conftest import Nodes, _stream_reader
from tests.pipelines.streams import ALL
from tests.support.waiting import wait_until


def test_late_acknowledgements_of_decommissioned_node_end_no_query(cluster, topic, caplog, tmp_path):
    (tmp_path / "secret").write_text("s" * 64)
    secret = f"--cluster-secret-file={tmp_path / 'secret'}"
    lookupd = cluster.nsqlookupd("--reconnect-interval=1ms")
    target, node = (cluster.nsqd(secret, f"--node-id={number}") for number in (1, 2))
    nodes = Nodes.of(cluster, lookupd, [target, node])
    for nsqd in nodes.nsqds:
        nodes.publish(nsqd, topic, b"a", b"b")
    reader = _stream_reader(nodes.parsed(topic))
    reader.initialOffset()
    end = reader.latestOffset(reader.initialOffset(), ALL)
    node.post(f"/decommission?target={target.tcp_address}")
    wait_until(lambda: node.get("/decommission")["done"], "it is decommissioned", seconds=60)

    reader.commit(end)
    reader.commit(end)

    (told,) = [record.getMessage() for record in caplog.records if "decommissioned" in record.getMessage()]
    assert told.startswith(f"nsqd {node.http_address} was decommissioned before all stored messages")
