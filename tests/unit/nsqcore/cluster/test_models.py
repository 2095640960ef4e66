import pytest

from nsqcore.cluster.models import ChannelStats, Lookup, NodeInfo, NodeStats, Registration


def test_null_lists_and_absent_fields_read_as_nothing():
    stats = NodeStats.from_json({"version": "1.3.0", "topics": None})

    assert (stats.version, stats.health, stats.start_time, stats.topics) == ("1.3.0", "", 0, ())


def test_tombstones_belong_to_topic_at_the_same_place_and_topics_are_sorted():
    found = NodeInfo.from_json({"topics": ["orders", "clicks"], "tombstones": [True, False]})

    assert found.topics == (Registration("clicks"), Registration("orders", tombstoned=True))


def test_tombstone_list_that_is_too_short_means_not_tombstoned():
    found = NodeInfo.from_json({"topics": ["orders"], "tombstones": []})

    assert found.topics == (Registration("orders"),)


def test_ipv6_node_gets_brackets_in_its_addresses():
    found = NodeInfo.from_json({"broadcast_address": "::1", "tcp_port": 4150, "http_port": 4151})

    assert (found.tcp_address, found.http_address) == ("[::1]:4150", "[::1]:4151")


def test_nsqlookupd_adds_address_of_connection():
    found = NodeInfo.from_json({"remote_address": "10.0.0.9:5000"}).listed_by("a:4161")

    assert found.remote_addresses == ("a:4161/10.0.0.9:5000",)
    assert NodeInfo.from_json({}).listed_by("a:4161").remote_addresses == ("a:4161/N/A",)


def test_node_info_has_identity_of_ours_and_none_of_the_original():
    ours = NodeInfo.from_json({"identity": "ab", "accepts_replicas": True})
    original = NodeInfo.from_json({})

    assert (ours.identity, ours.accepts_replicas) == ("ab", True)
    assert (original.identity, original.accepts_replicas) == ("", False)


@pytest.mark.parametrize("value", [1, "true", None, []])
def test_node_info_accepts_replicas_only_if_it_is_true(value):
    assert not NodeInfo.from_json({"identity": "ab", "accepts_replicas": value}).accepts_replicas


def test_latency_is_read_with_its_percentiles():
    stats = ChannelStats.from_json(
        {"e2e_processing_latency": {"count": 3, "percentiles": [{"quantile": 0.99, "value": 12}]}}
    )

    assert stats.latency.count == 3
    assert [(entry.quantile, entry.value_ns) for entry in stats.latency.percentiles] == [(0.99, 12.0)]


@pytest.mark.parametrize(
    "record",
    [
        {"topics": "orders"},
        {"topics": [1]},
        {"topics": [{"topic_name": 1}]},
        {"topics": [{"depth": "7"}]},
        {"topics": [{"paused": 1}]},
        {"topics": [{"e2e_processing_latency": []}]},
        {"version": 1},
    ],
)
def test_field_of_wrong_type_is_refused(record):
    with pytest.raises(ValueError, match="Expected"):
        NodeStats.from_json(record)


def test_lookup_without_producers_is_no_error():
    assert Lookup.from_json({"channels": ["billing"], "producers": None}) == Lookup(("billing",), ())
