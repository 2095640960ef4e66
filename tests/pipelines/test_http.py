"""The blocking client: which requests it repeats, and which errors it reports."""

import gc
import sys

import pytest

from bench.ports import free_port
from nsqclient.wire.node_error import TOPIC_NOT_FOUND, NodeError
from pyspark_nsq.source.http import NodeConnection, NodeConnections


def test_answer_that_says_no_is_reported_at_once_with_its_code(nodes):
    with NodeConnection(nodes.nsqds[0].http_address, 5, 60) as node, pytest.raises(NodeError) as caught:
        node.get("/log/bounds", [("topic", "nowhere")])

    assert (caught.value.status, caught.value.code) == (404, TOPIC_NOT_FOUND)


def test_unreachable_node_is_reported_after_retry_limit():
    address = f"127.0.0.1:{free_port()}"
    with NodeConnection(address, 5, 0.1) as node, pytest.raises(NodeError) as caught:
        node.get("/ping", [])

    assert caught.value.unreachable
    assert str(caught.value) == f'Get "http://{address}/ping?": connection refused'


def test_non_json_answer_is_reported(nodes):
    with (
        NodeConnection(nodes.nsqds[0].http_address, 5, 0) as node,
        pytest.raises(NodeError, match="unusable answer from http"),
    ):
        node.get_json("/ping", [], dict)


def test_one_connection_serves_many_requests(nodes):
    with NodeConnection(nodes.nsqds[0].http_address, 5, 0) as node:
        node.get("/ping", [])
        kept = node._connection.sock
        node.get("/ping", [])

        assert node._connection.sock is kept


class Knot:
    """A reference cycle, which only the garbage collector can free."""

    def __init__(self, *parts):
        self.parts = [self, *parts]


def test_connections_are_closed_also_where_garbage_collector_finds_them(nodes, monkeypatch):
    """A connection whose error is kept is in a reference cycle, through the error's frames."""
    unheard = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: unheard.append(str(one.exc_value)))
    for _ in range(10):
        connections = NodeConnections(nodes.parsed("t"))
        node = connections.node(nodes.nsqds[0].http_address, 0)
        node.get("/ping", [])
        # The socket comes first, so that it is finalized before the connections.
        Knot(node._connection.sock, connections)
    del connections, node

    gc.collect()

    assert unheard == []
