"""A topic with its parts on each node: records, latencies and consumers."""

import json

import pytest

from nsqadmin.stats.records import LatencyRecord, PercentileRecord
from nsqadmin.stats.sums import on_node, over_nodes
from nsqadmin.stats.topic_records import channel_record, topic_record
from tests.support.records import channel_json, latency_json, producer, topic_stats

NOW_S = 1_700_000_000
CLIENT = {"hostname": "app", "client_id": "billing-1", "connect_ts": NOW_S - 60}


def on(node, *channels, **fields):
    return node, (topic_stats("orders", *channels, **fields), (), 0, node.http_address)


def part(node, *channels, **fields):
    return on_node(*on(node, *channels, **fields), NOW_S)


def total(*shares):
    return over_nodes("orders", [on_node(*one, NOW_S) for one in shares], [one for _, one in shares])


def test_node_record_splits_depth_into_memory_and_disk():
    record = topic_record(part(producer(4151), depth=7, backend_depth=5, message_count=9))

    assert (record["node"], record["hostname"]) == ("127.0.0.1:4151", "vm")
    assert (record["depth"], record["memory_depth"], record["backend_depth"]) == (7, 2, 5)


def test_parts_of_channels_stay_as_they_were_when_they_are_added_up():
    found = total(
        on(producer(4151), channel_json("b", depth=1), channel_json("a", depth=2)),
        on(producer(4251), channel_json("b", depth=10), depth=1),
    )

    assert [(one.channel_name, one.depth) for one in found.channels] == [("a", 2), ("b", 11)]
    assert [(one.node, one.depth) for one in found.channels[1].parts] == [
        ("127.0.0.1:4151", 1),
        ("127.0.0.1:4251", 10),
    ]
    assert [(one.depth, one.own_depth) for one in found.parts] == [(3, 0), (11, 1)]
    assert found.parts[0].problems == ()


def test_consumers_know_their_node_and_how_long_they_are_connected():
    node = producer(4151, topology_zone="a", topology_region="r")
    clients = [{"hostname": "app", "connect_ts": NOW_S - 60}]

    (client,) = part(node, channel_json("b", clients=clients)).channels[0].clients

    assert (client.node, client.connected_ns) == ("127.0.0.1:4151", 60_000_000_000)
    assert (client.node_topology_zone, client.node_topology_region) == ("a", "r")


def test_clock_behind_nodes_makes_no_negative_connection_time():
    (client,) = part(producer(), channel_json("b", clients=[{"connect_ts": NOW_S + 5}])).channels[0].clients

    assert client.connected_ns == 0


def test_consumers_of_the_same_zone_come_first_then_those_of_region():
    node = producer(4151, topology_zone="a", topology_region="r")
    places = [("x", "q"), ("b", "r"), ("a", "other"), ("a", "r")]
    clients = [{"topology_zone": zone, "topology_region": region} for zone, region in places]

    found = part(node, channel_json("b", clients=clients)).channels[0].clients

    assert [(one.stats.topology_zone, one.stats.topology_region) for one in found][:2] == [
        ("a", "r"),
        ("b", "r"),
    ]
    assert [one.zone_local for one in found] == [True, False, False, False]


def test_flat_list_of_consumers_goes_by_node():
    found = total(
        on(producer(4251), channel_json("b", clients=[{"hostname": "two"}])),
        on(producer(4151), channel_json("b", clients=[{"hostname": "one"}])),
    )

    assert [client.stats.hostname for client in found.channels[0].clients] == ["one", "two"]


def test_merged_latency_has_true_extremes_and_average_weighted_by_count():
    found = total(
        on(producer(4151), e2e_processing_latency=latency_json(1, p99=100, p50=10)),
        on(producer(4251), e2e_processing_latency=latency_json(3, p99=200, p50=50)),
    )

    (p99, p50) = found.latency.percentiles
    assert (p99.min_ns, p99.max_ns, p99.average_ns, p99.count) == (100, 200, pytest.approx(175), 4)
    assert (p50.min_ns, p50.max_ns, p50.average_ns, p50.count) == (10, 50, pytest.approx(40), 4)
    assert (found.latency.count, found.latency.topic, found.latency.host) == (4, "orders", "*")


def test_node_that_measured_nothing_does_not_pull_minimum_to_zero():
    found = total(
        on(producer(4151), e2e_processing_latency=latency_json(0, p99=0)),
        on(producer(4251), e2e_processing_latency=latency_json(3, p99=200)),
        on(producer(4351), e2e_processing_latency=latency_json(0, p99=0)),
    )

    (p99,) = found.latency.percentiles
    assert (p99.min_ns, p99.max_ns, p99.average_ns) == (200, 200, 200)


def test_latencies_that_no_node_measured_leave_total_that_can_be_written():
    nodes = [
        on(producer(4151), e2e_processing_latency=latency_json(5, p99=1e308)),
        on(producer(4251), e2e_processing_latency=latency_json(-4, p99=-1e308)),
        on(producer(4351), e2e_processing_latency=latency_json(2**63 - 1, p99=-1e308)),
    ]

    found = total(*nodes)

    (p99,) = found.latency.percentiles
    assert -(2.0**63) <= p99.min_ns <= p99.average_ns <= p99.max_ns <= 2.0**63
    assert json.dumps(topic_record(found), allow_nan=False)


def test_topic_has_exactly_keys_of_api_and_its_lists_are_never_null():
    shown = topic_record(total(on(producer(4151))))

    assert list(shown) == [
        "node",
        "hostname",
        "topic_name",
        "depth",
        "memory_depth",
        "backend_depth",
        "message_count",
        "delivery_msg_count",
        "nodes",
        "channels",
        "paused",
        "e2e_processing_latency",
    ]
    assert shown["channels"] == []
    assert shown["nodes"][0]["nodes"] == []
    assert shown["nodes"][0]["e2e_processing_latency"]["percentiles"] == []


def test_delivery_counters_appear_only_when_something_was_counted():
    (plain,) = total(on(producer(4151), channel_json("b"))).channels
    (counted,) = total(
        on(producer(4151), channel_json("b", zone_local_msg_count=2, global_msg_count=3))
    ).channels

    assert "delivery_msg_count" not in channel_record(plain)
    shown = channel_record(counted)
    assert (shown["delivery_msg_count"], shown["zone_local_msg_count"], shown["global_msg_count"]) == (
        5,
        2,
        3,
    )
    assert "region_local_msg_count" not in shown


def test_consumer_shows_its_place_only_when_it_has_one():
    (nowhere,) = total(on(producer(4151), channel_json("b", clients=[CLIENT]))).channels[0].clients
    (placed,) = (
        total(on(producer(4151), channel_json("b", clients=[{**CLIENT, "topology_zone": "a"}])))
        .channels[0]
        .clients
    )

    assert "topology_zone" not in nowhere.to_json()
    assert placed.to_json()["topology_zone"] == "a"
    assert nowhere.to_json()["connected"] == 60_000_000_000


def test_percentiles_of_node_carry_their_value_and_those_of_total_do_not():
    shown = topic_record(total(on(producer(4151), e2e_processing_latency=latency_json(2, p99=100))))

    assert shown["nodes"][0]["e2e_processing_latency"]["percentiles"] == [
        {"average": 100, "count": 2, "max": 100, "min": 100, "quantile": 0.99, "value": 100}
    ]
    assert "value" not in shown["e2e_processing_latency"]["percentiles"][0]


def test_whole_numbers_are_written_without_fraction():
    entry = PercentileRecord(0.5, 10.0, 10.0, 10.5, 1)

    shown = LatencyRecord(1, [entry]).to_json()["percentiles"][0]

    assert (repr(shown["min"]), repr(shown["average"])) == ("10", "10.5")
