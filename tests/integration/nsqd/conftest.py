"""A real nsqd that the tests of this folder share, and connections to it that are closed after each test.

Tests do not disturb each other, because each has its own topics: ``topic`` is a fresh name.
"""

import itertools

import pytest

from tests.integration.nsqd.restarts import crash, stop
from tests.support.nsqd_http import channel_stats, topic_stats
from tests.support.processes import Cluster
from tests.support.wire import MAGIC_V2, Wire

_numbers = itertools.count()


@pytest.fixture(scope="session")
def shared_nsqd(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("nsqd") / "shared")
    yield cluster.nsqd()
    cluster.close()


@pytest.fixture
def nsqd(shared_nsqd, request):
    """The shared nsqd; a test fails if nsqd ends or logs a traceback during the test."""
    before = len(shared_nsqd.logs())
    yield shared_nsqd
    said = shared_nsqd.logs()[before:]
    request.node.add_report_section("teardown", "nsqd", said[-4000:])
    assert shared_nsqd.is_running(), said
    assert "Traceback" not in said, said


@pytest.fixture
def node(cluster):
    """An nsqd of the test alone."""
    return cluster.nsqd()


@pytest.fixture
def connect(request):
    """Connect to a daemon, by default the shared nsqd."""
    opened = []

    def connect(daemon=None, magic=MAGIC_V2):
        if daemon is None:
            daemon = request.getfixturevalue("nsqd")
        wire = Wire(("127.0.0.1", daemon.tcp_port), magic)
        opened.append(wire)
        return wire

    yield connect
    for wire in opened:
        wire.close()


@pytest.fixture
def wire(connect):
    """A fresh connection to the shared nsqd."""
    return connect()


@pytest.fixture
def topic():
    """A topic name that was not used before."""
    return f"topic{next(_numbers)}"


@pytest.fixture
def stats(nsqd):
    """The statistics of one topic, or of one of its channels."""

    def stats(topic, channel=None):
        return topic_stats(nsqd, topic) if channel is None else channel_stats(nsqd, topic, channel)

    return stats


@pytest.fixture(params=[crash, stop], ids=["kill -9", "clean stop"])
def restart(request):
    return request.param
