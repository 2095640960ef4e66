"""The files of one topic, on a real disk, with a clock that the test sets."""

import gzip
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nsqclient.wire.durations import SECOND
from nsqtools.nsq_to_file.archive import Archive, ArchiveLayout
from nsqtools.nsq_to_file.names import Naming
from nsqtools.nsq_to_file.rotation import Rotation
from tests.support.descriptors import open_below


class Time:
    def __init__(self) -> None:
        self.seconds = 0

    def local(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def passed(self) -> int:
        return self.seconds * SECOND


class Notes(list[str]):
    def info(self, text: str, *values: object) -> None:
        self.append(text % values)

    warning = info


class Runs:
    """Archives of the same folders, one after another, like successive runs of the tool."""

    def __init__(self, folder, *, work=False, level=None, skip_empty=False, **rotation: int) -> None:
        self.time, self.notes = Time(), Notes()
        self.out = folder / "out"
        self.work = folder / "work" if work else self.out
        self.layout = ArchiveLayout(self.out, self.work, Rotation(**rotation), level, skip_empty)
        self.naming = Naming(
            "<TOPIC><REV>.<DATETIME>.log",
            "%H%M",
            "vm",
            1,
            gzip=level is not None,
            revisions=self.layout.moves or self.layout.exclusive or self.layout.rotation.size > 0,
        )
        self.work.mkdir(parents=True)
        self.out.mkdir(exist_ok=True)

    def archive(self) -> Archive:
        return Archive(self.layout, self.naming.of("t"), self.time, self.notes)

    def files(self, where=None) -> dict[str, bytes]:
        found = {path.name: path.read_bytes() for path in (where or self.out).iterdir()}
        if self.layout.gzip_level is not None:
            found = {name: gzip.decompress(data) for name, data in found.items()}
        return dict(sorted(found.items()))


def killed(archive: Archive) -> None:
    """Leave what a killed process leaves: the descriptor is closed and the buffer is not written."""
    os.close(archive._file.fd)
    archive._file = None


def test_torn_line_of_the_last_run_stands_alone(tmp_path):
    runs = Runs(tmp_path)
    (runs.out / "t.0000.log").write_bytes(b"a\nhal")

    archive = runs.archive()
    archive.add([b"b"])
    archive.close()

    assert runs.files() == {"t.0000.log": b"a\nhal\nb\n"}


def test_file_may_exceed_size_by_one_record(tmp_path):
    runs = Runs(tmp_path, size=20)
    archive = runs.archive()

    archive.add([b"x" * 11] * 3)
    archive.close()

    assert {name: len(data) for name, data in runs.files().items()} == {
        "t-000000.0000.log": 24,
        "t-000001.0000.log": 12,
    }


def test_restart_skips_files_that_are_over_size_and_closes_them(tmp_path):
    runs = Runs(tmp_path, size=5)
    for number in range(50):
        (runs.out / f"t-{number:06d}.0000.log").write_bytes(b"x" * 6)

    archive = runs.archive()
    archive.add([b"a"])
    archive.close()

    assert runs.files()["t-000050.0000.log"] == b"a\n"
    assert open_below(tmp_path) == []


@pytest.mark.parametrize("rules", [{"level": 6}, {"interval": 3600 * SECOND}])
def test_gzip_and_interval_never_touch_file_that_is_there(tmp_path, rules):
    runs = Runs(tmp_path, **rules)
    for body in (b"a", b"b"):
        archive = runs.archive()
        archive.add([body])
        archive.close()

    assert list(runs.files().values()) == [b"a\n", b"b\n"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"t.0000.log": b""}),
        ({"skip_empty": True}, {}),
        ({"level": 1}, {"t-000000.0000.log.gz": b""}),
    ],
)
def test_idle_topic_gets_empty_file_unless_told_not_to(tmp_path, options, expected):
    runs = Runs(tmp_path, **options)
    archive = runs.archive()
    archive.rotate()
    archive.close()

    assert runs.files() == expected


def test_files_are_moved_when_they_are_finished(tmp_path):
    runs = Runs(tmp_path, work=True)
    archive = runs.archive()
    archive.add([b"a"])
    archive.sync()
    assert (runs.files(), list(runs.files(runs.work))) == ({}, ["t-000000.0000.log"])

    archive.close()

    assert (runs.files(), runs.files(runs.work)) == ({"t-000000.0000.log": b"a\n"}, {})


def test_file_that_is_there_already_is_never_overwritten(tmp_path):
    runs = Runs(tmp_path, work=True)
    archive = runs.archive()
    archive.add([b"ours"])
    (runs.out / "t-000000.0000.log").write_bytes(b"theirs")
    archive.close()

    assert runs.files() == {"t-000000.0000.log": b"theirs", "t-000001.0000.log": b"ours\n"}


def packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)  # without the time, which would be in the names of the tests


def left_behind(folder, content: bytes, level: int | None) -> tuple[Runs, list[bytes]]:
    """What comes of a leftover with this content under a name that does not tell its kind."""
    runs = Runs(folder, work=True, level=level)
    names = Naming("<TOPIC><REV>.gz", "", "vm", 1, gzip=level is not None, revisions=True).of("t")
    (runs.work / "t-000000.gz").write_bytes(content)
    Archive(runs.layout, names, runs.time, runs.notes).recover()
    assert list(runs.work.iterdir()) == []
    return runs, [path.read_bytes() for path in runs.out.iterdir()]


@pytest.mark.parametrize("level", [None, 6])
@pytest.mark.parametrize(
    ("complete", "torn"),
    [
        (b"a\nb\n", b"torn"),
        (packed(b"a\n") + packed(b"b\n"), packed(b"torn\n")[:-3]),
        (packed(b"a\n"), b"\x1f\x8b"),
        (packed(b"a\n"), b""),
    ],
)
def test_leftover_is_recovered_by_its_content(tmp_path, level, complete, torn):
    runs, found = left_behind(tmp_path, complete + torn, level)

    assert found == [complete]
    expected = complete.startswith(b"\x1f\x8b") == (level is not None)
    assert any("though this run writes" in note for note in runs.notes) != expected


@pytest.mark.parametrize("level", [None, 6])
@pytest.mark.parametrize(
    "bodies",
    [
        [packed(b"a"), packed(b"b")],
        [packed(b"a")],
        [packed(b"a") + b"and more", b"b"],
        [b"\x1f\x8b\x08 is no gzip", b"b"],
    ],
)
def test_lines_that_begin_like_gzip_stay_lines(tmp_path, level, bodies):
    content = b"".join(body + b"\n" for body in bodies)

    assert left_behind(tmp_path, content, level)[1] == [content]


def test_single_line_that_reads_like_torn_member_is_kept_by_run_without_gzip(tmp_path):
    line = packed(b"a body that was cut")[:-9] + b"\n"

    assert left_behind(tmp_path, line, None)[1] == [line]


@pytest.mark.parametrize(
    ("content", "level"), [(packed(b"a\n" * 99)[:-1], 6), (b"\x1f\x8b", 6), (b"torn", 6)]
)
def test_leftover_without_complete_record_is_removed(tmp_path, content, level):
    assert left_behind(tmp_path, content, level)[1] == []


def test_zeros_that_follow_member_after_power_cut_take_no_member_with_them(tmp_path):
    complete = packed(b"a\n")

    [found] = left_behind(tmp_path, complete + b"\0" * 99, 6)[1]
    assert gzip.decompress(found) == b"a\n"


def test_file_that_another_process_writes_is_no_leftover(tmp_path):
    runs = Runs(tmp_path, work=True)
    alive = runs.archive()
    alive.add([b"a"])
    alive.sync()

    runs.archive().recover()
    assert list(runs.files(runs.work)) == ["t-000000.0000.log"]
    alive.add([b"b"])
    alive.close()

    assert list(runs.files().values()) == [b"a\nb\n"]


def test_run_killed_between_link_and_unlink_leaves_one_file(tmp_path):
    runs = Runs(tmp_path, work=True)
    (runs.work / "t-000000.0000.log").write_bytes(b"a\n")
    os.link(runs.work / "t-000000.0000.log", runs.out / "t-000000.0000.log")

    runs.archive().recover()

    assert (runs.files(), runs.files(runs.work)) == ({"t-000000.0000.log": b"a\n"}, {})


def test_name_that_leads_out_of_both_folders_to_one_place_keeps_its_file(tmp_path):
    runs = Runs(tmp_path, work=True)
    names = Naming("../<TOPIC><REV>.log", "", "vm", 1, revisions=True).of("t")
    archive = Archive(runs.layout, names, runs.time, runs.notes)
    archive.add([b"a"])

    archive.close()

    assert (tmp_path / "t-000000.log").read_bytes() == b"a\n"


def test_file_is_no_leftover_before_it_has_its_final_name(tmp_path, monkeypatch):
    runs = Runs(tmp_path, work=True)
    archive = runs.archive()
    archive.add([b"a"])
    link = os.link

    def link_later(path, final):
        runs.archive().recover()
        link(path, final)

    monkeypatch.setattr(os, "link", link_later)
    archive.close()

    assert (runs.files(), runs.files(runs.work)) == ({"t-000000.0000.log": b"a\n"}, {})


@pytest.mark.parametrize("opens_first", [True, False])
def test_leftover_moved_by_concurrent_run_is_skipped(tmp_path, monkeypatch, opens_first):
    runs = Runs(tmp_path, work=True)
    leftover = runs.work / "t-000000.0000.log"
    leftover.write_bytes(b"a\n")
    cluster_http = Path.open

    def open_late(path, mode="r"):
        if path != leftover or mode != "r+b":
            return cluster_http(path, mode)
        monkeypatch.setattr(Path, "open", cluster_http)
        file = cluster_http(path, mode) if opens_first else None
        runs.archive().recover()
        return file or cluster_http(path, mode)

    monkeypatch.setattr(Path, "open", open_late)
    runs.archive().recover()

    assert (runs.files(), runs.files(runs.work)) == ({"t-000000.0000.log": b"a\n"}, {})


def test_leftover_gives_way_to_file_of_its_name(tmp_path):
    runs = Runs(tmp_path, work=True)
    (runs.work / "t-000000.0000.log").write_bytes(b"a\n")
    (runs.out / "t-000000.0000.log").write_bytes(b"b\n")

    runs.archive().recover()

    assert sorted(runs.files().values()) == [b"a\n", b"b\n"]


def test_files_of_others_in_work_folder_stay(tmp_path):
    runs = Runs(tmp_path, work=True)
    (runs.work / "notes.txt").write_bytes(b"mine\n")

    runs.archive().recover()

    assert list(runs.files(runs.work)) == ["notes.txt"]


def test_folders_are_made_for_their_group_only(tmp_path):
    runs = Runs(tmp_path, work=True)
    names = Naming("<TOPIC>/x/<REV>.log", "", "vm", 1, revisions=True).of("t")
    old = os.umask(0)
    try:
        archive = Archive(runs.layout, names, runs.time, runs.notes)
        archive.add([b"a"])
        archive.close()
    finally:
        os.umask(old)

    assert {stat.S_IMODE((runs.out / folder).stat().st_mode) for folder in ("t", "t/x")} == {0o770}
    assert stat.S_IMODE((runs.out / "t/x/-000000.log").stat().st_mode) == 0o666


def test_sync_of_new_file_puts_its_name_on_disk_too(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync

    def told(fd):
        synced.append(Path(f"/proc/self/fd/{fd}").readlink())
        fsync(fd)

    monkeypatch.setattr(os, "fsync", told)
    runs = Runs(tmp_path)
    archive = runs.archive()
    archive.add([b"one"])
    archive.sync()
    (file,) = runs.out.iterdir()

    assert synced[synced.index(file) :] == [file, runs.out]
    synced.clear()
    archive.add([b"two"])
    archive.sync()
    assert synced == [file]
    archive.close()
