"""Topology-aware consumption over real sockets, in three ways, as it was seen on the original."""

import pytest

from tests.support.wire import fin

EXPERIMENT = "--enable-experiment=topology-aware-consumption"
PLACE = ("--topology-zone=z1", "--topology-region=r1")
CLIENTS = {
    "zone": {"topology_zone": "z1", "topology_region": "r1"},
    "region": {"topology_zone": "z2", "topology_region": "r1"},
    "nowhere": {"topology_zone": "", "topology_region": ""},
    "other": {"topology_zone": "z9", "topology_region": "r9"},
}
COUNTS = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")


@pytest.fixture
def spread(cluster, connect):
    """Publish 40 messages one after another to four idle consumers; return how many each got."""

    def spread(*flags):
        nsqd = cluster.nsqd(*flags)
        wires = {}
        for name, place in CLIENTS.items():
            wires[name] = wire = connect(nsqd)
            wire.identify(**place)
            wire.subscribe("t", "c", ready=1)
            wire.quiet()
        producer = connect(nsqd)
        got = dict.fromkeys(CLIENTS, 0)
        for _ in range(40):
            producer.publish("t", b"x")
            (topic,) = nsqd.get("/stats?format=json&topic=t")["topics"]
            (channel,) = topic["channels"]
            busy = [client["topology_zone"] for client in channel["clients"] if client["in_flight_count"]]
            (name,) = [name for name, place in CLIENTS.items() if [place["topology_zone"]] == busy]
            wires[name].send(fin(wires[name].message()))
            # Wait, so that the consumer is idle again before the next message comes.
            wires[name].quiet()
            got[name] += 1
        (topic,) = nsqd.get("/stats?format=json&topic=t")["topics"]
        counts = {key: value for key, value in topic["channels"][0].items() if key in COUNTS}
        return got, counts, nsqd

    return spread


def test_messages_go_to_consumer_in_the_same_zone(spread):
    got, counts, nsqd = spread(EXPERIMENT, *PLACE)

    assert got == {"zone": 40, "region": 0, "nowhere": 0, "other": 0}
    assert counts == {"zone_local_msg_count": 40}
    statistics = nsqd.request("GET", "/metrics")[1]
    assert b'nsqd_channel_delivered_total{channel="c",to="zone",topic="t"} 40.0' in statistics


def test_consumers_share_messages_without_experiment(spread):
    got, counts, nsqd = spread(*PLACE)

    assert got == dict.fromkeys(CLIENTS, 10)
    assert counts == {"global_msg_count": 40}
    assert b"nsqd_channel_delivered" not in nsqd.request("GET", "/metrics")[1]


def test_nsqd_without_place_of_its_own_is_near_nobody(spread):
    got, counts, _ = spread(EXPERIMENT)

    assert got == dict.fromkeys(CLIENTS, 10)
    assert counts == {"global_msg_count": 40}
