from nsqcore.cluster.discovery import merge_lookups, merge_nodes
from tests.support.records import producer


def test_first_nsqlookupd_describes_node_and_each_adds_where_it_saw_it():
    first = producer(remote_address="10.0.0.9:1", topics=["orders"])
    second = producer(remote_address="10.0.0.9:2", topics=[])

    (merged,) = merge_nodes([("a:4161", [first]), ("b:4161", [second])])

    assert merged.remote_addresses == ("a:4161/10.0.0.9:1", "b:4161/10.0.0.9:2")
    assert [registration.topic for registration in merged.topics] == ["orders"]


def test_two_nodes_on_one_host_are_two_nodes():
    merged = merge_nodes([("a:4161", [producer(4151), producer(4251)])])

    assert [node.http_port for node in merged] == [4151, 4251]


def test_node_that_reconnected_and_is_listed_twice_counts_once():
    merged = merge_lookups([[producer(4151), producer(4151)], [producer(4151), producer(4251)]])

    assert [node.http_port for node in merged] == [4151, 4251]
