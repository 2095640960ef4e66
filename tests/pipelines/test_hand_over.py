"""An nsqd hands its messages over to another one while a query reads from it."""

from tests.pipelines.streams import ALL
from tests.support.waiting import wait_until


def test_what_cannot_be_acknowledged_after_a_hand_over_is_told_and_ends_no_query(doomed, fragile, caplog):
    reader, start, node = doomed
    end = reader.latestOffset(start, ALL)
    taker = fragile.cluster.nsqd("--node-id=7")
    node.post(f"/drain?hand_over=true&taker={taker.tcp_address}")
    wait_until(lambda: node.get("/drain")["hand_over"]["state"] == "handed over", "it is handed over")

    reader.commit(end)
    reader.commit(end)

    (told,) = [record.getMessage() for record in caplog.records if "handed" in record.getMessage()]
    assert told.startswith(f"nsqd {node.http_address} has handed its messages over before all")
