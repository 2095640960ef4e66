"""A cluster for tests to break, which counts the messages published there and those that a query stored.

A test of docs/evidence/pipelines-faults.md asserts that its fault happened: it would fail without the fault.
"""

import signal
from collections import Counter

from pyspark_nsq.source.batch_reader import NsqBatchReader
from tests.pipelines.conftest import Nodes
from tests.pipelines.mini import Query
from tests.support.nsqd_http import set_policy

SMALL_FILES = "--max-bytes-per-file=20000"
COUNT = 1000


def numbered(nsqd, first, count=COUNT):
    """Bodies that all differ, also from those of other nsqds."""
    return [b"%d:%d" % (nsqd.http_port, number) + b"." * 40 for number in range(first, first + count)]


def end(daemon, how="kill"):
    """Let a daemon that runs end by "stop" or "kill", and assert that this ended it."""
    assert daemon.is_running()
    assert getattr(daemon, how)() == (-signal.SIGKILL if how == "kill" else 0)
    assert not daemon.is_running()


class Case:
    """A cluster to break, a topic with a query's channel on its nsqds, and the bodies published there."""

    def __init__(self, cluster, nsqds=2, *flags):
        self._begin(Nodes(cluster, nsqds, SMALL_FILES, *flags))

    @classmethod
    def of(cls, cluster, lookupd, nsqds):
        """A case with daemons that are already running."""
        case = cls.__new__(cls)
        case._begin(Nodes.of(cluster, lookupd, nsqds))
        return case

    def _begin(self, nodes):
        self.nodes = nodes
        self.nsqds = nodes.nsqds
        self.published: Counter[bytes] = Counter()
        for nsqd in self.nsqds:
            self.open(nsqd)
        self.query = Query(self.nodes, "t", {"retryTimeout": "1"})

    def open(self, nsqd, channel="archive"):
        nsqd.create("t", channel)

    def policy(self, channel="", **definition):
        """Set a policy on all nsqds, for the topic or for a channel."""
        for nsqd in self.nsqds:
            set_policy(nsqd, "^t$", channel=channel, apply=True, **definition)

    def publish(self, first=0, count=COUNT, nsqds=None):
        for nsqd in self.nsqds if nsqds is None else nsqds:
            bodies = numbered(nsqd, first, count)
            # Several appends, so that there are several files.
            for at in range(0, count, 100):
                self.nodes.publish(nsqd, "t", *bodies[at : at + 100])
            self.published.update(bodies)

    def exact(self, query=None):
        """Assert that every published message is stored once."""
        found = Counter((query or self.query).bodies)
        assert found - self.published == Counter()
        assert self.published - found == Counter()

    def none_twice(self, query=None):
        """Assert that no message is stored twice, and none that was not published."""
        assert Counter((query or self.query).bodies) - self.published == Counter()

    def files(self, nsqd):
        return sorted((nsqd.folder / "t.topic").glob("*.log"))

    def finish(self, nsqd, channel):
        """Empty a channel, so that its backlog is empty."""
        nsqd.post(f"/channel/empty?topic=t&channel={channel}")


def spoil_body(path, *, last=True):
    """Flip a bit in the last body of a file, or in one in its middle.

    Its bytes at a fixed place may be a note, without which all messages are there.
    """
    content = bytearray(path.read_bytes())
    body = b"." * 40
    content[content.rindex(body) if last else content.index(body, len(content) // 2)] ^= 1
    path.write_bytes(content)


def batch(case):
    reader = NsqBatchReader(case.nodes.parsed("t", channel=""))
    return [
        body for one in reader.partitions() for rows in reader.read(one) for body in rows["body"].to_pylist()
    ]
