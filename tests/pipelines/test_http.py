"""The blocking client: which requests it repeats, and which errors it reports."""

import gc
import sys

import pytest

from bench.ports import free_port
from nsqclient.wire.node_error import TOPIC_NOT_FOUND, NodeError
from pyspark_nsq.source.http import NodeConnection, NodeConnections
from pyspark_nsq.source.options import NodeOptions


def connect(address, retry_s=0):
    return NodeConnection(address, NodeOptions(), retry_s)


def test_refusal_and_unusable_answer_are_reported_without_wait(nodes):
    with connect(nodes.nsqds[0].http_address, 3600) as node:
        with pytest.raises(NodeError) as caught:
            node.get("/log/bounds", [("topic", "nowhere")])
        with pytest.raises(NodeError, match="unusable answer from http"):
            node.get_json("/ping", [], dict)
        kept = node._connection.sock
        node.get("/ping", [])
        # One connection serves all requests.
        assert node._connection.sock is kept

    assert (caught.value.status, caught.value.code) == (404, TOPIC_NOT_FOUND)


def test_unreachable_node_is_reported_after_retry_limit():
    address = f"127.0.0.1:{free_port()}"
    with connect(address, 0.1) as node, pytest.raises(NodeError) as caught:
        node.get("/ping", [])

    assert caught.value.unreachable
    assert str(caught.value) == f'Get "http://{address}/ping?": connection refused'


class Knot:
    """A reference cycle, which only the garbage collector can free."""

    def __init__(self, *parts):
        self.parts = [self, *parts]


def test_connections_in_garbage_are_closed(nodes, monkeypatch):
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
