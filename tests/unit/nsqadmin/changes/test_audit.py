import errno
import io
import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from nsqadmin.changes.audit import Audit, AuditEntry, later_outcome
from nsqcore.process.logs import Log
from tests.support.records import channel_json, topic_stats


def entry(number=0, **fields):
    return AuditEntry(
        1000.0 + number, "alice", "header", "10.0.0.1:5", "pause_topic", topic=f"t{number}", **fields
    )


def audit(path="", most_bytes=10_000, stream=None):
    return Audit(str(path), Log(stream=stream or io.StringIO()), most_bytes)


def test_audit_entries_are_one_line_each(tmp_path):
    path = tmp_path / "audit"
    audit(path).note(AuditEntry(1.0, "a\nb", "", "@", "delete_topic", topic='x"\n{"user":"root"}\u2028'))

    (line,) = path.read_bytes().splitlines()
    assert json.loads(line)["topic"] == 'x"\n{"user":"root"}\u2028'
    assert path.read_bytes().count(b"\n") == 1


def test_entries_of_earlier_run_are_shown_newest_first(tmp_path):
    path = tmp_path / "audit"
    first = audit(path)
    for number in range(3):
        first.note(
            entry(number, before={"depth": 3}, after={"depth": 0}, results={"a:1": "done"}, silent=("b:1",))
        )

    again = audit(path).latest()

    assert [one.topic for one in again] == ["t2", "t1", "t0"]
    assert again[0] == first.latest()[0]


def test_file_has_bound_and_the_last_is_kept(tmp_path):
    path = tmp_path / "audit"
    book = audit(path, most_bytes=1000)
    for number in range(100):
        book.note(entry(number))

    sizes = [one.stat().st_size for one in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) <= 1000
    assert b'"t99"' in path.read_bytes()


def test_line_that_cannot_be_read_is_left_out_and_named(tmp_path):
    path = tmp_path / "audit"
    audit(path).note(entry())
    with path.open("ab") as file:
        file.write(b"{broken\n[]\n")
    stream = io.StringIO()

    assert len(audit(path, stream=stream).latest()) == 1
    assert stream.getvalue().count("cannot be read") == 2


def test_result_says_where_it_was_done_and_where_not():
    assert entry(results={"a:1": "done", "b:1": "timed out"}, silent=("c:1",)).result == (
        "1 of 2 nodes; b:1: timed out; not reached: c:1"
    )
    assert entry(ok=False, problem="no").result == "failed: no"
    assert entry(channel="c", node="n:1").subject == "t0/c on n:1"


def test_deed_has_plain_words_and_names_its_policy():
    one = AuditEntry(1.0, "a", "", "", "set_policy", after={"policy": "fraud"}, results={"a:1": "done"})

    assert (one.action_text, one.subject, one.is_partial) == ("Set policy", "fraud", False)
    assert entry(results={"a:1": "done", "b:1": "unknown: timed out"}).is_partial


def test_unknown_outcome_is_completed_by_later_record(tmp_path):
    path = tmp_path / "audit"
    book = audit(path)
    book.note(entry(results={"a:1": "done", "b:1": "unknown: timed out, it may still happen"}))
    book.note(entry(1))
    (waiting,) = audit(path).unknown()

    book.note(replace(waiting, results={"a:1": "done", "b:1": "done: seen when the node answered again"}))

    for latest in (book.latest(), audit(path).latest()):
        assert [one.topic for one in latest] == ["t1", "t0"]
        assert latest[1].result.startswith("2 of 2 nodes")
    assert not audit(path).unknown()


@pytest.mark.parametrize(
    ("action", "channels", "outcome"),
    [
        ("pause_channel", [channel_json("c", paused=True)], "done: seen"),
        ("pause_channel", [channel_json("c")], "not done"),
        ("unpause_channel", [channel_json("c")], "done: seen"),
        ("empty_channel", [channel_json("c")], "done: seen"),
        ("empty_channel", [channel_json("c", depth=3)], "not known to be done"),
        ("delete_channel", [], "done: seen"),
        ("delete_channel", [channel_json("c")], "not done"),
        ("create_topic and create_channel", [channel_json("c")], "done: seen"),
        ("seek_channel", [channel_json("c")], "not known to be done"),
    ],
)
def test_later_outcome_is_read_from_statistics(action, channels, outcome):
    done = AuditEntry(1.0, "a", "", "", action, topic="t", channel="c")

    assert later_outcome(done, topic_stats("t", *channels)) == f"{outcome} when the node answered again"


def test_audit_writes_line_later_that_it_could_not_write(tmp_path):
    folder = tmp_path / "there"
    folder.mkdir()
    stream = io.StringIO()
    book = audit(folder / "audit", stream=stream)
    (folder / "audit").unlink()
    folder.rmdir()

    book.note(entry())

    assert f"audit: a line is not in {folder / 'audit'} yet (No such file or directory)" in stream.getvalue()
    assert '"action":"pause_topic"' in stream.getvalue()
    assert len(book.latest()) == 1
    assert (book.write(), book.problem) == (False, "No such file or directory")
    folder.mkdir()
    assert (book.write(), book.problem) == (True, "")
    book.note(entry(2.0))
    lines = (folder / "audit").read_text().splitlines()
    assert [json.loads(line)["action"] for line in lines] == ["pause_topic"] * 2


def test_audit_leaves_no_part_of_line_on_full_disk(tmp_path, monkeypatch):
    book = audit(tmp_path / "audit")
    book.note(entry(1))
    before = (tmp_path / "audit").read_bytes()
    opened = Path.open

    def nearly_full(path, mode="r", **more):
        file = opened(path, mode, **more)
        if mode != "ab":
            return file
        return NearlyFull(file)

    monkeypatch.setattr(Path, "open", nearly_full)
    book.note(entry(2))
    assert (book.problem, (tmp_path / "audit").read_bytes()) == ("No space left on device", before)

    monkeypatch.undo()
    assert book.write()
    lines = (tmp_path / "audit").read_bytes().splitlines()
    assert [json.loads(line)["at"] for line in lines] == [1001.0, 1002.0]


class NearlyFull:
    """A file on a disk with room for ten more bytes."""

    def __init__(self, file):
        self._file = file
        self._room = 10

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write(self, data):
        if not self._room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._room -= (count := self._file.write(bytes(data[: self._room])))
        return count
