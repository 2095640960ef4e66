"""Nodes that freeze, die in the middle of an answer, lose their registrations, or have a wrong clock.

This continues test_faults.py, which says how the tests work.
"""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

from pyspark_nsq.source.batch_reader import NsqBatchReader, NsqFilteredReader
from pyspark_nsq.source.errors import UnreachableError
from pyspark_nsq.source.http import NodeConnection
from pyspark_nsq.source.stream_reader import NsqStreamReader
from tests.pipelines.broken import COUNT, SMALL_FILES, Case, end, numbered
from tests.pipelines.conftest import Nodes, bounds, depth
from tests.pipelines.streams import ALL, positions
from tests.support.processes import Daemon
from tests.support.waiting import wait_until

HOUR = 3600
ROOT = Path(__file__).parents[2]


@pytest.fixture
def case(cluster):
    return Case(cluster)


# --- nsqd


def nsqds_of(case, **options):
    """The nsqds of a batch read."""
    reader = NsqBatchReader(case.nodes.parsed("t", **{"channel": "", "retryTimeout": "0", **options}))
    return {partition.value.nsqd for partition in reader.partitions()}


def test_batch_read_without_silent_nsqd_is_refused_or_warns(case, caplog):
    case.publish()
    frozen, other = case.nsqds
    os.kill(frozen.pid, signal.SIGSTOP)
    try:
        with pytest.raises(UnreachableError, match=f"nsqd {frozen.http_address} does not answer"):
            nsqds_of(case, requestTimeout="500ms")
        found = nsqds_of(case, requestTimeout="500ms", failOnDataLoss="false")
    finally:
        os.kill(frozen.pid, signal.SIGCONT)

    assert found == {other.http_address}
    assert f"nsqd {frozen.http_address} does not answer" in caplog.text


def test_batch_read_misses_nsqd_that_was_listed_moment_ago(case, caplog):
    case.publish()
    lost, other = case.nsqds
    lost.kill()
    wait_until(
        lambda: case.nodes.lookupd.get("/lookup/lost?topic=t")["nodes"], "nsqlookupd knows that it is gone"
    )

    sentence = f"nsqd {lost.http_address} had topic 't' within the last five minutes and is disconnected"
    with pytest.raises(UnreachableError, match=sentence):
        nsqds_of(case)
    assert nsqds_of(case, failOnDataLoss="false") == {other.http_address}
    assert nsqds_of(case, forgetNsqds=lost.http_address) == {other.http_address}
    assert caplog.text.count(sentence) == 1
    lost.start()
    assert nsqds_of(case, retryTimeout="30s") == {lost.http_address, other.http_address}


def test_nsqd_killed_between_two_answers_of_range_is_waited_for(cluster, monkeypatch):
    nodes = Nodes(cluster, 1)
    (nsqd,) = nodes.nsqds
    bodies = [b"%d" % number + b"." * 900_000 for number in range(12)]
    for at in range(0, 12, 4):
        nodes.publish(nsqd, "t", *bodies[at : at + 4])
    reader = NsqStreamReader(
        nodes.parsed("t", startingOffsets="earliest", retryTimeout="20", minPartitions="1")
    )
    start = reader.initialOffset()
    (partition,) = reader.partitions(start, reader.latestOffset(start, ALL))
    answered_by, get = [], NodeConnection.get

    def noted(node, path, params):
        answer = get(node, path, params)
        if path == "/log/range":
            answered_by.append(nsqd.pid)
        return answer

    monkeypatch.setattr(NodeConnection, "get", noted)
    found = []
    for number, piece in enumerate(reader.read(partition)):
        found += piece["body"].to_pylist()
        if not number:
            end(nsqd)
            nsqd.start()
    reader.stop()

    # Both processes sent a part.
    assert len(set(answered_by)) == 2
    assert found == bodies


@pytest.mark.parametrize("end_of_life", ["stop", "kill"])
def test_repeated_nsqd_restarts_lose_nothing(case, end_of_life):
    nsqd = case.nsqds[0]
    for number in range(4):
        case.publish(number * 10, 10)
        assert case.query.run() == ""
        end(nsqd, end_of_life)
        nsqd.start()
        # In every second round the query also runs after the start, when there are no new messages.
        if number % 2:
            assert case.query.run() == ""

    assert case.query.run() == ""
    assert case.query.run(failOnDataLoss="false") == ""
    case.exact()


def test_forgotten_nsqd_that_comes_back_is_read(case):
    case.publish()
    assert case.query.run() == ""
    gone, other = case.nsqds
    end(gone, "stop")
    case.publish(COUNT, 10, [other])
    assert case.query.run(forgetNsqds=gone.http_address) == ""
    assert f"t@{gone.http_address}" not in positions(json.loads(case.query.offsets[-1]))
    gone.start()
    case.publish(COUNT, 100, [gone])

    assert [case.query.run(), case.query.run()] == ["", ""]
    case.exact()


def test_paused_channel_is_read(case):
    case.publish()
    for nsqd in case.nsqds:
        nsqd.post("/channel/pause?topic=t&channel=archive")
        nsqd.post("/topic/pause?topic=t")
        (paused,) = nsqd.get("/stats?format=json&topic=t")["topics"]
        assert paused["paused"]
        assert [channel["paused"] for channel in paused["channels"]] == [True]

    assert case.query.run() == ""
    case.exact()
    for nsqd in case.nsqds:
        nsqd.post("/topic/unpause?topic=t")
        assert depth(nsqd, "t") == 0


# --- nsqlookupd


def test_restarted_nsqlookupd_without_nsqds_ends_no_query(case):
    case.publish()
    assert case.query.run(limit=400, batches=1) == ""
    lookupd = case.nodes.lookupd
    end(lookupd)
    # At another TCP port, which no nsqd knows.
    lookupd.ports["tcp"] = 0
    lookupd.start()

    assert case.query.run() == ""
    case.exact()
    assert lookupd.get("/nodes")["producers"] == []


def test_nsqlookupds_with_different_nsqds_are_all_asked(cluster):
    lookupds = cluster.nsqlookupd(), cluster.nsqlookupd()
    nsqds = [cluster.nsqd(SMALL_FILES, lookupds=[one]) for one in lookupds]
    case = Case.of(cluster, lookupds[0], nsqds[:1])
    case.publish()
    case.nsqds.append(nsqds[1])
    case.open(nsqds[1])
    nsqds[1].post("/mpub?topic=t", b"\n".join(numbered(nsqds[1], 0)))
    case.published.update(numbered(nsqds[1], 0))
    wait_until(lambda: lookupds[1].request("GET", "/lookup?topic=t")[0] == 200, "it is listed")
    both = ",".join(one.http_address for one in lookupds)

    assert case.query.run(lookupdHttpAddresses=both) == ""
    assert case.query.run(lookupdHttpAddresses=both) == ""
    case.exact()
    for lookupd, nsqd in zip(lookupds, nsqds, strict=True):
        assert [one["http_port"] for one in lookupd.get("/nodes")["producers"]] == [nsqd.http_port]


# --- the clock


class WrongClock(Daemon):
    """An nsqd whose wall clock is wrong by the number of seconds in a file."""

    def command(self):
        text = (
            "import runpy, sys, time\n"
            f"file = {str(self.folder / 'clock')!r}\n"
            "right = time.time_ns\n"
            "time.time_ns = lambda: right() + int(open(file).read() or 0) * 10**9\n"
            "time.time = lambda: time.time_ns() / 1e9\n"
            f"runpy.run_module({self.program!r}, run_name='__main__', alter_sys=True)\n"
        )
        return [sys.executable, "-c", text]

    def set(self, seconds):
        new = self.folder / "clock.new"
        new.write_text(str(seconds))
        new.replace(self.folder / "clock")


def with_wrong_clock(cluster):
    """A case with one nsqd, whose clock can be set."""
    lookupd = cluster.nsqlookupd("--reconnect-interval=1ms")
    flags = ["--broadcast-address=127.0.0.1", f"--lookupd-tcp-address={lookupd.tcp_address}", SMALL_FILES]
    nsqd = cluster.daemon("nsqd", flags, kind=WrongClock)
    nsqd.flags.append(f"--data-path={nsqd.folder}")
    nsqd.set(0)
    nsqd.start()
    return Case.of(cluster, lookupd, [nsqd])


@pytest.mark.slow
@pytest.mark.parametrize("when", ["while it runs", "between two stops", "between two kills"])
@pytest.mark.parametrize("steps", [[-HOUR], [30 * 24 * HOUR, 0]], ids=["back", "far ahead and back"])
def test_clock_step_moves_no_message(cluster, when, steps):
    case = with_wrong_clock(cluster)
    (nsqd,) = case.nsqds
    case.publish()
    assert case.query.run(limit=300, batches=2) == ""
    times, extra = [time_of_last_message(case)], itertools.count(100 * COUNT)
    for number, seconds in enumerate(steps, 1):
        if when != "while it runs":
            end(nsqd, when.removeprefix("between two ").removesuffix("s"))
        nsqd.set(seconds)
        if when != "while it runs":
            nsqd.start()

        def has_stepped(before=times[-1]):
            # A running nsqd reads the clock once a second.
            case.publish(next(extra), 1)
            return abs(time_of_last_message(case) - before) > timedelta(minutes=30)

        wait_until(has_stepped, "the clock was set")
        case.publish(number * COUNT, COUNT)
        times.append(time_of_last_message(case))
        assert case.query.run(limit=300, batches=2) == ""
    ends = [end for _, end in bounds(nsqd, "t")["extents"]]

    assert ends == sorted(ends)
    assert case.query.run() == ""
    case.exact()
    assert depth(nsqd, "t") == 0
    assert times[-1] < times[-2]


def time_of_last_message(case):
    """When nsqd says that the message with the highest sequence was published."""
    return max(rows_between(case.nodes, "filter", None, None), key=lambda row: row["sequence"])["timestamp"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["filter", "option"])
def test_filter_on_time_is_exact_after_clock_was_set_back(cluster, how):
    case = with_wrong_clock(cluster)
    (nsqd,) = case.nsqds
    for number, seconds in enumerate((0, -3 * HOUR, 0)):
        nsqd.kill()
        nsqd.set(seconds)
        nsqd.start()
        case.publish(number * COUNT)
    everything = rows_between(case.nodes, "filter", None, None)
    times = [row["timestamp"] for row in everything]
    # The clock went back and forth, and the nsqd knows it.
    assert len(times) == 3 * COUNT
    assert times != sorted(times)
    moment = max(times) - timedelta(hours=1)
    late = Counter(row["body"] for row in everything if row["timestamp"] >= moment)
    assert late.total() == 2 * COUNT

    assert Counter(row["body"] for row in rows_between(case.nodes, how, moment, None)) == late
    assert (
        Counter(row["body"] for row in rows_between(case.nodes, how, None, moment)) == case.published - late
    )
    assert rows_between(case.nodes, how, moment, moment) == []


def rows_between(nodes, how, first, end):
    """Rows of a batch read whose time is in ``first <= timestamp < end``, by pushed filters or by options."""
    given = {"startingTimestamp": first, "endingTimestamp": end} if how == "option" else {}
    options = {name: moment.isoformat() for name, moment in given.items() if moment}
    reader = NsqFilteredReader(nodes.parsed("t", channel="", **options))
    if how == "filter":
        filters = [GreaterThanOrEqual(("timestamp",), first), LessThan(("timestamp",), end)]
        assert reader.pushFilters([one for one in filters if one.value is not None]) == []
    return [row for part in reader.partitions() for piece in reader.read(part) for row in piece.to_pylist()]


# --- memory

MIB = 30
MEASURE = """
import resource, sys
from pyspark_nsq.source.batch_reader import NsqBatchReader
from pyspark_nsq.source.options import SourceOptions

address, topic = sys.argv[1:]
options = {"nsqdHttpAddresses": address, "topic": topic, "minPartitions": "1"}
reader = NsqBatchReader(SourceOptions.parse(options))
rows = [piece.num_rows for part in reader.partitions() for piece in reader.read(part)]
print(len(rows), max(rows), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def memory_mib(nsqd, name):
    status = Path(f"/proc/{nsqd.pid}/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+)", status)[1]) // 1024


@pytest.mark.slow
@pytest.mark.executed
def test_memory_follows_largest_body_and_not_their_number(cluster, monkeypatch):
    """A task has one body at a time in memory, and nsqd those that it sends."""
    # Memory of a freed body returns to the system immediately, so only used memory is counted.
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "1000000")
    (nsqd,) = Nodes(cluster, 1, "--max-msg-size=70000000", "--max-body-size=70000000").nsqds
    body = os.urandom(MIB * 1_000_000)
    peaks = []
    for topic, count in (("few", 2), ("many", 5)):
        nsqd.post(f"/topic/create?topic={topic}")
        nsqd.post(f"/channel/create?topic={topic}&channel=keep")
        for _ in range(count):
            nsqd.post(f"/pub?topic={topic}", body)
        before = memory_mib(nsqd, "VmRSS")
        Path(f"/proc/{nsqd.pid}/clear_refs").write_text("5")
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, nsqd.http_address, topic],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((f"{ROOT}/client", f"{ROOT}/pipelines"))},
        )
        pieces, largest, reader_mib = map(int, done.stdout.split())
        assert (pieces, largest) == (count, 1)
        peaks.append(reader_mib)
        # This is what nsqd took for reading: two bodies, and one that it keeps for the next reader.
        assert memory_mib(nsqd, "VmHWM") - before < 3 * MIB

    # Three more bodies take less memory than one body.
    assert peaks[1] - peaks[0] < MIB - 2
