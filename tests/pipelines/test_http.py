"""The blocking client: what it repeats, what it reports."""

import pytest

from pyspark_nsq.source.http import NodeConnection
from pyspark_nsq.source.node_error import TOPIC_NOT_FOUND, SourceNodeError
from tests.support.processes import free_port


def test_an_answer_that_says_no_is_reported_at_once_with_its_code(nodes):
    with NodeConnection(nodes.nsqds[0].http_address, 5, 60) as node, pytest.raises(SourceNodeError) as caught:
        node.get("/log/bounds", [("topic", "nowhere")])

    assert (caught.value.status, caught.value.code) == (404, TOPIC_NOT_FOUND)


def test_nobody_there_is_reported_when_the_time_for_repeating_is_up():
    address = f"127.0.0.1:{free_port()}"
    with NodeConnection(address, 5, 0.1) as node, pytest.raises(SourceNodeError) as caught:
        node.get("/ping", [])

    assert caught.value.unreachable
    assert str(caught.value) == f'Get "http://{address}/ping?": connection refused'


def test_an_answer_that_is_no_json_is_reported(nodes):
    with (
        NodeConnection(nodes.nsqds[0].http_address, 5, 0) as node,
        pytest.raises(SourceNodeError, match="unusable answer from http"),
    ):
        node.get_json("/ping", [], dict)


def test_one_connection_serves_many_requests(nodes):
    with NodeConnection(nodes.nsqds[0].http_address, 5, 0) as node:
        node.get("/ping", [])
        kept = node._connection.sock
        node.get("/ping", [])

        assert node._connection.sock is kept
