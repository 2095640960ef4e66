"""An nsqlookupd and two nsqd for all tests of a file, and a separate topic for each test."""

import json
import threading
from contextlib import contextmanager
from itertools import count
from urllib.parse import urlencode

import pytest

from pyspark_nsq.source.options import SourceOptions
from tests.support.processes import Cluster
from tests.support.waiting import wait_until

_topics = count()


class Nodes:
    """The cluster as the tests of the source use it."""

    def __init__(self, cluster, nsqds=2, *flags):
        self.cluster = cluster
        # It is ready immediately; all are registered before a test begins.
        self.lookupd = cluster.nsqlookupd("--reconnect-interval=1ms")
        self.nsqds = [cluster.nsqd(*flags) for _ in range(nsqds)]
        # A daemon that listens has only begun to register.
        wait_until(lambda: len(self.lookupd.get("/nodes")["producers"]) == nsqds, "all are registered")

    @classmethod
    def of(cls, cluster, lookupd, nsqds):
        """A cluster of daemons that are already running."""
        nodes = cls.__new__(cls)
        nodes.cluster, nodes.lookupd, nodes.nsqds = cluster, lookupd, nsqds
        return nodes

    def options(self, topic, **changes):
        """Options of the source that find this cluster."""
        given = {"lookupdHttpAddresses": self.lookupd.http_address, "topic": topic, "channel": "archive"}
        return {**given, "retryTimeout": "0", **changes}

    def parsed(self, topic, **changes):
        return SourceOptions.parse(self.options(topic, **changes))

    def publish(self, nsqd, topic, *bodies):
        """MPUB, and wait until nsqlookupd knows who has the topic."""
        nsqd.post(f"/mpub?topic={topic}", b"\n".join(bodies))
        self.listed(nsqd, topic)

    def listed(self, nsqd, topic):
        def is_listed():
            status, answer = self.lookupd.request("GET", f"/lookup?topic={topic}")
            ports = [producer["http_port"] for producer in json.loads(answer).get("producers", [])]
            return status == 200 and nsqd.http_port in ports

        wait_until(is_listed, f"nsqlookupd lists {topic} of {nsqd.http_address}")


def bounds(nsqd, topic):
    return nsqd.get(f"/log/bounds?{urlencode({'topic': topic})}")


def depth(nsqd, topic, channel="archive"):
    """The depth of the channel, by /stats; None while there is no such channel."""
    (found,) = nsqd.get(f"/stats?{urlencode({'format': 'json', 'topic': topic})}")["topics"]
    return next((entry["depth"] for entry in found["channels"] if entry["channel_name"] == channel), None)


@contextmanager
def started_later(daemon):
    """Start a daemon that is down after a while, in a thread."""
    start = threading.Timer(0.5, daemon.start)
    start.start()
    yield
    start.join()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("nodes") / "cluster")
    yield Nodes(cluster)
    cluster.close()


@pytest.fixture(scope="session")
def spark():
    """One Spark for all tests; it takes several seconds to start."""
    # Imported here, because the other tests of this folder run without Spark.
    from pyspark_nsq.jobs.session import spark_session
    from tests.pipelines.spark_jobs import SETTINGS

    with spark_session("tests", "local[2]", SETTINGS) as session:
        yield session


@pytest.fixture
def topic():
    return f"topic-{next(_topics)}"


def _stream_reader(options):
    # Imported here, like Spark above.
    from pyspark_nsq.source.stream_reader import NsqStreamReader

    return NsqStreamReader(options)


@pytest.fixture
def reader(nodes, topic):
    """A reader of a topic with three messages on each nsqd."""
    for number, nsqd in enumerate(nodes.nsqds):
        nodes.publish(nsqd, topic, *(b"%d%d" % (number, n) for n in range(3)))
    return _stream_reader(nodes.parsed(topic))


@pytest.fixture
def fragile(cluster):
    """The test's own cluster, whose daemons it may kill."""
    return Nodes(cluster)


@pytest.fixture
def doomed(fragile, topic):
    """(reader, its initial offset, the nsqd that the test will kill)"""
    for nsqd in fragile.nsqds:
        fragile.publish(nsqd, topic, b"a", b"b")
    reader = _stream_reader(fragile.parsed(topic))
    return reader, reader.initialOffset(), fragile.nsqds[1]
