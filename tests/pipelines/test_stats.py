"""The history of /stats: rows for topics and channels, and requests that continue when nodes are away."""

from datetime import UTC, datetime

import pyarrow.dataset as ds
import pytest

from pyspark_nsq.jobs.signals import Stop
from pyspark_nsq.jobs.stats import StatsPoller, parse, record, rows_of
from pyspark_nsq.parquet.storage import FolderStorage
from pyspark_nsq.sink.options import SinkOptions
from pyspark_nsq.source.errors import SourceError
from tests.pipelines.conftest import Nodes
from tests.support.waiting import wait_until


class Clock:
    """A clock that moves on by a step each time it is read."""

    def __init__(self, now, step):
        self.now, self.step = now, step

    def __call__(self):
        self.now += self.step
        return self.now


def table(folder):
    return ds.dataset(folder, partitioning="hive").to_table().to_pylist()


def options(nodes, folder, *flags):
    address = f"--lookupd-http-address={nodes.lookupd.http_address}"
    return parse([address, f"--output={folder}", "--every=0.01", *flags])


@pytest.fixture
def filled(nodes, topic):
    """Three messages on the first nsqd, all pending in a channel."""
    nodes.nsqds[0].post(f"/topic/create?topic={topic}")
    nodes.nsqds[0].post(f"/channel/create?topic={topic}&channel=c")
    nodes.publish(nodes.nsqds[0], topic, b"a", b"b", b"c")
    return topic


def test_sample_has_row_for_each_topic_and_channel(nodes, filled, tmp_path):
    found = options(nodes, tmp_path, "--looks=2")
    assert record(found, FolderStorage(tmp_path), Stop()) == len(table(tmp_path))
    rows = [row for row in table(tmp_path) if row["topic"] == filled]

    assert [(row["channel"], row["depth"], row["messages"]) for row in rows] == 2 * [
        (None, 0, 3),
        ("c", 3, 3),
    ]
    assert {row["nsqd"] for row in rows} == {nodes.nsqds[0].http_address}
    assert len({row["time"] for row in rows}) == 2


def test_samples_of_some_minutes_are_file_in_folder_of_hour(nodes, filled, tmp_path):
    begin = datetime(2026, 11, 20, 22, 59, 50, tzinfo=UTC).timestamp()
    found = options(nodes, tmp_path, "--looks=6", "--file-every=8")
    record(found, FolderStorage(tmp_path), Stop(), Clock(begin, 1.0))
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet"))

    assert len(files) > 2
    assert {file.rpartition("/")[0] for file in files} == {
        "date=2026-11-20/hour=22",
        "date=2026-11-20/hour=23",
    }


def test_row_of_down_nsqd_has_reason_and_last_list_is_kept(cluster, tmp_path):
    nodes = Nodes(cluster, 1)
    nodes.publish(nodes.nsqds[0], "t", b"a")
    stop = Stop()
    looks = 0

    class Breaking(Clock):
        def __call__(self):
            nonlocal looks
            looks += 1
            if looks == 4:
                nodes.nsqds[0].kill()
                nodes.lookupd.kill()
            return super().__call__()

    out = tmp_path / "history"
    record(options(nodes, out, "--looks=2"), FolderStorage(out), stop, Breaking(0, 0.01))
    rows = table(out)

    assert [row["topic"] for row in rows] == ["t", None]
    assert "connection refused" in rows[-1]["error"]


def test_samples_before_error_are_written(nodes, filled, tmp_path):
    class Failing(Clock):
        def __call__(self):
            if self.now > 3:
                raise SourceError("the secret cannot be read")
            return super().__call__()

    with pytest.raises(SourceError, match="the secret cannot be read"):
        record(options(nodes, tmp_path), FolderStorage(tmp_path), Stop(), Failing(0, 1.0))

    assert filled in {row["topic"] for row in table(tmp_path)}


def test_unlisted_nsqd_has_rows_for_a_day(cluster):
    nodes = Nodes(cluster)
    _, down = nodes.nsqds
    look = StatsPoller(SinkOptions.parse({"lookupdHttpAddresses": nodes.lookupd.http_address}))
    assert [row["nsqd"] for row in look(0.0)] == []
    down.kill()
    wait_until(lambda: len(nodes.lookupd.get("/nodes")["producers"]) == 1, "it is listed no more")

    (row,) = look(10.0)
    assert row["nsqd"] == down.http_address
    assert "connection refused" in row["error"]
    assert list(look(86_399.0))
    assert not list(look(86_400.0))
    look.close()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--every=0"], "--every=0 is not above 0"),
        (["--looks=-1"], "--looks=-1 is not above 0"),
        ([], "exactly one of the options lookupdHttpAddresses and nsqdHttpAddresses"),
    ],
)
def test_invalid_flag_is_named(flags, sentence, capsys):
    with pytest.raises(SystemExit):
        parse(["--output=x", *(["--nsqd-http-address=a:1"] if flags else []), *flags])
    assert sentence in capsys.readouterr().err


def test_statistics_unknown_to_nsqd_are_null():
    """Go's nsqd has fewer statistics."""
    topic = {
        "topic_name": "t",
        "depth": 1,
        "backend_depth": 0,
        "message_count": 2,
        "paused": False,
        "channels": None,
    }

    assert list(rows_of({"topics": [topic]})) == [
        {"topic": "t", "paused": False, "depth": 1, "backend_depth": 0, "messages": 2}
    ]
