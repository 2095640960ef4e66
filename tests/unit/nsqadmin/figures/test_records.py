from nsqadmin.figures import aggregate
from nsqadmin.figures.records import LatencyRecord, PercentileRecord
from tests.support.records import channel_json, latency_json, producer, topic_stats

CLIENT = {"hostname": "app", "client_id": "billing-1", "connect_ts": 100}


def total(*channels, **fields):
    record = aggregate.topic_on(producer(4151), topic_stats("orders", *channels, **fields), 160)
    return aggregate.total_topic("orders", [record])


def test_a_topic_has_exactly_the_keys_of_the_api_and_its_lists_are_never_null():
    shown = total().to_json()

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
    (plain,) = total(channel_json("b")).channels
    (counted,) = total(channel_json("b", zone_local_msg_count=2, global_msg_count=3)).channels

    assert "delivery_msg_count" not in plain.to_json()
    shown = counted.to_json()
    assert (shown["delivery_msg_count"], shown["zone_local_msg_count"], shown["global_msg_count"]) == (
        5,
        2,
        3,
    )
    assert "region_local_msg_count" not in shown


def test_a_consumer_shows_its_place_only_when_it_has_one():
    (nowhere,) = total(channel_json("b", clients=[CLIENT])).channels[0].clients
    (placed,) = total(channel_json("b", clients=[{**CLIENT, "topology_zone": "a"}])).channels[0].clients

    assert "topology_zone" not in nowhere.to_json()
    assert placed.to_json()["topology_zone"] == "a"
    assert nowhere.to_json()["connected"] == 60_000_000_000


def test_percentiles_of_a_node_carry_their_value_and_those_of_a_total_do_not():
    shown = total(e2e_processing_latency=latency_json(2, p99=100)).to_json()

    assert shown["nodes"][0]["e2e_processing_latency"]["percentiles"] == [
        {"average": 100, "count": 2, "max": 100, "min": 100, "quantile": 0.99, "value": 100}
    ]
    assert "value" not in shown["e2e_processing_latency"]["percentiles"][0]


def test_whole_numbers_are_written_without_a_fraction():
    entry = PercentileRecord(0.5, 10.0, 10.0, 10.5, 1)

    shown = LatencyRecord(1, [entry]).to_json()["percentiles"][0]

    assert (repr(shown["min"]), repr(shown["average"])) == ("10", "10.5")
