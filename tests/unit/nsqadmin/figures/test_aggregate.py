import json

import pytest

from nsqadmin.figures import aggregate
from tests.support.records import channel_json, latency_json, producer, topic_stats

NOW_S = 1_700_000_000


def on(node, *channels, **fields):
    return aggregate.topic_on(node, topic_stats("orders", *channels, **fields), NOW_S)


def test_a_node_record_splits_depth_into_memory_and_disk():
    record = on(producer(4151), depth=7, backend_depth=5, message_count=9)

    assert (record.node, record.hostname) == ("127.0.0.1:4151", "vm")
    assert (record.depth, record.memory_depth, record.backend_depth) == (7, 2, 5)


def test_a_total_adds_up_nodes_and_is_paused_when_any_node_is():
    total = aggregate.total_topic(
        "orders", [on(producer(4151), depth=7, message_count=9), on(producer(4251), depth=1, paused=True)]
    )

    assert (total.node, total.hostname, total.depth, total.message_count) == ("*", "", 8, 9)
    assert total.paused
    assert [node.depth for node in total.nodes] == [7, 1]


def test_channels_are_added_up_by_name_and_sorted():
    total = aggregate.total_topic(
        "orders",
        [
            on(producer(4151), channel_json("b", depth=1, client_count=1), channel_json("a", depth=2)),
            on(producer(4251), channel_json("b", depth=10, in_flight_count=3)),
        ],
    )

    assert [(channel.channel_name, channel.depth) for channel in total.channels] == [("a", 2), ("b", 11)]
    assert (total.channels[1].client_count, total.channels[1].in_flight_count) == (1, 3)
    assert len(total.channels[1].nodes) == 2


def test_node_records_stay_as_they_were_when_they_are_added_up():
    first = on(producer(4151), channel_json("b", depth=1))

    aggregate.total_topic("orders", [first, on(producer(4251), channel_json("b", depth=10))])

    assert first.channels[0].node == "127.0.0.1:4151"
    assert (first.channels[0].depth, first.channels[0].nodes) == (1, [])


def test_two_nodes_of_one_host_are_always_listed_in_the_order_of_their_addresses():
    nodes = [on(producer(4251)), on(producer(4151)), on(producer(4100, hostname="alpha"))]

    total = aggregate.total_topic("orders", nodes)

    assert [node.node for node in total.nodes] == ["127.0.0.1:4100", "127.0.0.1:4151", "127.0.0.1:4251"]


def test_a_topic_without_nodes_has_a_total_of_nothing():
    total = aggregate.total_topic("orders", [])

    assert (total.depth, total.nodes, total.channels, total.paused) == (0, [], [], False)


def test_consumers_know_their_node_and_how_long_they_are_connected():
    node = producer(4151, topology_zone="a", topology_region="r")
    clients = [{"hostname": "app", "connect_ts": NOW_S - 60}]

    (client,) = on(node, channel_json("b", clients=clients)).channels[0].clients

    assert (client.node, client.connected_ns) == ("127.0.0.1:4151", 60_000_000_000)
    assert (client.node_topology_zone, client.node_topology_region) == ("a", "r")


def test_a_clock_behind_the_nodes_makes_no_negative_connection_time():
    (client,) = on(producer(), channel_json("b", clients=[{"connect_ts": NOW_S + 5}])).channels[0].clients

    assert client.connected_ns == 0


def test_consumers_of_the_same_zone_come_first_then_those_of_the_region():
    node = producer(4151, topology_zone="a", topology_region="r")
    places = [("x", "q"), ("b", "r"), ("a", "other"), ("a", "r")]
    clients = [{"topology_zone": zone, "topology_region": region} for zone, region in places]

    found = on(node, channel_json("b", clients=clients)).channels[0].clients

    assert [(one.stats.topology_zone, one.stats.topology_region) for one in found][:2] == [
        ("a", "r"),
        ("b", "r"),
    ]
    assert [one.zone_local for one in found] == [True, False, False, False]


def test_the_flat_list_of_consumers_goes_by_node():
    total = aggregate.total_topic(
        "orders",
        [
            on(producer(4251), channel_json("b", clients=[{"hostname": "two"}])),
            on(producer(4151), channel_json("b", clients=[{"hostname": "one"}])),
        ],
    )

    assert [client.stats.hostname for client in total.channels[0].clients] == ["one", "two"]


def test_merged_latency_has_true_extremes_and_an_average_weighted_by_count():
    total = aggregate.total_topic(
        "orders",
        [
            on(producer(4151), e2e_processing_latency=latency_json(1, p99=100, p50=10)),
            on(producer(4251), e2e_processing_latency=latency_json(3, p99=200, p50=50)),
        ],
    )

    (p99, p50) = total.latency.percentiles
    assert (p99.min_ns, p99.max_ns, p99.average_ns, p99.count) == (100, 200, pytest.approx(175), 4)
    assert (p50.min_ns, p50.max_ns, p50.average_ns, p50.count) == (10, 50, pytest.approx(40), 4)
    assert (total.latency.count, total.latency.topic, total.latency.host) == (4, "orders", "*")


def test_a_node_that_measured_nothing_does_not_pull_the_minimum_to_zero():
    total = aggregate.total_topic(
        "orders",
        [
            on(producer(4151), e2e_processing_latency=latency_json(0, p99=0)),
            on(producer(4251), e2e_processing_latency=latency_json(3, p99=200)),
            on(producer(4351), e2e_processing_latency=latency_json(0, p99=0)),
        ],
    )

    (p99,) = total.latency.percentiles
    assert (p99.min_ns, p99.max_ns, p99.average_ns) == (200, 200, 200)


def test_latency_nobody_measured_is_zero():
    nodes = [on(producer(port), e2e_processing_latency=latency_json(0, p99=0)) for port in (4151, 4251)]

    (p99,) = aggregate.total_topic("orders", nodes).latency.percentiles

    assert (p99.average_ns, p99.count) == (0, 0)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.2.9", "1.3.0"),
        ("1.3.0-compat", "1.3.0"),
        ("1.3.0-alpha.2", "1.3.0-alpha.10"),
        ("1.3.0-9", "1.3.0-alpha"),
        ("garbage", "0.0.1"),
        ("1.9.0", "1.10.0"),
    ],
)
def test_versions_are_ordered_as_semantic_versions(older, newer):
    assert aggregate.version_key(older) < aggregate.version_key(newer)


def test_only_nodes_below_the_newest_version_are_out_of_date():
    nodes = [producer(4151, version="1.3.0"), producer(4251, version="1.2.1")]

    assert aggregate.out_of_date(nodes) == {"127.0.0.1:4250"}
    assert aggregate.out_of_date([]) == set()


def test_a_version_of_thousands_of_digits_is_as_old_as_an_unreadable_one():
    assert aggregate.version_key("9" * 5000 + ".0.0") == aggregate.version_key("?")


def test_latencies_that_no_node_measured_leave_a_total_that_can_be_written():
    nodes = [
        on(producer(4151), e2e_processing_latency=latency_json(5, p99=1e308)),
        on(producer(4251), e2e_processing_latency=latency_json(-4, p99=-1e308)),
        on(producer(4351), e2e_processing_latency=latency_json(2**63 - 1, p99=-1e308)),
    ]

    total = aggregate.total_topic("orders", nodes)

    (p99,) = total.latency.percentiles
    assert -(2.0**63) <= p99.min_ns <= p99.average_ns <= p99.max_ns <= 2.0**63
    assert json.dumps(total.to_json(), allow_nan=False)
