"""nsq_to_file against real daemons: killed, hung up, stopped, and on a disk that fails."""

import gzip
import io
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from tests.support.nsqd_http import channel_stats
from tests.support.processes import ignores_or_handles
from tests.support.tools import SOON_BACK, Tool, publish, read_all, run_tool, unfinished
from tests.support.waiting import wait_until

CHANNEL = "nsq_to_file"

SYNCED = "syncing"


class Folders:
    """The folders that the tool writes to, and their content."""

    def __init__(self, folder: Path) -> None:
        self.out, self.work = folder / "out", folder / "work"

    def flags(self, nsqd, *more: str, topic: str = "t") -> list[str]:
        return [
            f"-topic={topic}",
            f"-nsqd-tcp-address={nsqd.tcp_address}",
            f"-output-dir={self.out}",
            "-host-identifier=h",
            *more,
        ]

    def files(self, folder: Path | None = None) -> list[Path]:
        return sorted(path for path in (folder or self.out).rglob("*") if path.is_file())

    def lines(self) -> list[bytes]:
        """All lines of all files, finished or not."""
        found: list[bytes] = []
        for path in [*self.files(), *(self.files(self.work) if self.work.exists() else [])]:
            found += contents(path).split(b"\n")
        return [line for line in found if line]


def contents(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix != ".gz":
        return data
    read = bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        try:
            while piece := file.read1():
                read += piece
        except EOFError:
            pass  # the end was torn off by a kill
    return bytes(read)


@pytest.fixture
def folders(tmp_path):
    return Folders(tmp_path / "files")


def gone(nsqd) -> None:
    wait_until(lambda: channel_stats(nsqd, "t", CHANNEL)["client_count"] == 0, "nsqd has noticed")


def all_wait(nsqd, count: int) -> bool:
    """Whether this many messages have timed out, and the consumer wants none of them."""
    stats = channel_stats(nsqd, "t", CHANNEL)
    ready = [client["ready_count"] for client in stats["clients"]]
    return stats["timeout_count"] >= count and stats["depth"] == count and ready == [0]


def numbered(count: int) -> list[bytes]:
    return [b"%07d" % n for n in range(count)]


def test_messages_are_lines_of_file_named_by_topic_host_and_hour(nsqd, folders, tmp_path):
    publish(nsqd, "t", [b"a", b"b"], CHANNEL)
    with Tool(tmp_path, "nsq_to_file", *folders.flags(nsqd, "-datetime-format=%Y")) as tool:
        wait_until(lambda: unfinished(nsqd, "t", CHANNEL) == 0, "all is finished")
        assert tool.stop() == 0

    [path] = folders.files()
    assert re.fullmatch(r"t\.h\.20\d\d\.log", path.name)
    assert path.read_bytes() == b"a\nb\n"
    assert "[nsq_to_file] " in tool.said()
    assert "INFO: [t/nsq_to_file] syncing 2 records to disk" in tool.said()


def test_messages_are_in_file_before_sync_and_finished_after(nsqd, folders, tmp_path):
    publish(nsqd, "t", [b"first"], CHANNEL)
    with Tool(tmp_path, "nsq_to_file", *folders.flags(nsqd, "-sync-interval=2s")) as tool:
        tool.until_said(SYNCED)
        publish(nsqd, "t", [b"second"])
        wait_until(lambda: folders.lines() == [b"first", b"second"], "it is written")
        assert channel_stats(nsqd, "t", CHANNEL)["in_flight_count"] == 1
        wait_until(lambda: unfinished(nsqd, "t", CHANNEL) == 0, "the interval has passed")

        assert tool.said().count(SYNCED) == 2


def test_gzip_files_are_members_that_end_with_each_sync(nsqd, folders, tmp_path):
    publish(nsqd, "t", [b"first"], CHANNEL)
    with Tool(tmp_path, "nsq_to_file", *folders.flags(nsqd, "-gzip", "-sync-interval=200ms")) as tool:
        tool.until_said(SYNCED)
        publish(nsqd, "t", [b"second"])
        wait_until(lambda: unfinished(nsqd, "t", CHANNEL) == 0, "all is finished")
        tool.kill()

    [path] = folders.files()
    assert path.name.startswith("t.h-000000.")
    assert gzip.decompress(path.read_bytes()) == b"first\nsecond\n"
    assert path.read_bytes().count(b"\x1f\x8b\x08") == 2


def test_message_held_for_long_is_synced_before_it_times_out(cluster, folders, tmp_path):
    nsqd = cluster.nsqd("--msg-timeout=2s")
    publish(nsqd, "t", [b"first"], CHANNEL)
    with Tool(tmp_path, "nsq_to_file", *folders.flags(nsqd, "-sync-interval=60s")) as tool:
        tool.until_said(SYNCED)
        publish(nsqd, "t", [b"second"])
        wait_until(lambda: unfinished(nsqd, "t", CHANNEL) == 0, "it is finished")

    assert channel_stats(nsqd, "t", CHANNEL)["timeout_count"] == 0
    assert folders.lines() == [b"first", b"second"]


def test_small_max_in_flight_does_not_wait_for_interval(nsqd, folders, tmp_path):
    publish(nsqd, "t", numbered(50), CHANNEL)
    with Tool(tmp_path, "nsq_to_file", *folders.flags(nsqd, "-max-in-flight=5")):
        wait_until(lambda: unfinished(nsqd, "t", CHANNEL) == 0, "all is finished")

    assert folders.lines() == numbered(50)


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["-gzip", "-rotate-size=20000"],
        ["-work-dir", "-gzip", "-rotate-interval=200ms", "-skip-empty-files"],
    ],
    ids=" ".join,
)
def test_kills_lose_nothing_that_was_finished(nsqd, folders, tmp_path, flags):
    flags = [f"-work-dir={folders.work}" if flag == "-work-dir" else flag for flag in flags]
    bodies = numbered(30_000)
    publish(nsqd, "t", bodies, CHANNEL)
    more = [*flags, "-sync-interval=50ms", "-max-in-flight=100", "-datetime-format=%M%S", *SOON_BACK]
    for kill in range(1, 4):
        with Tool(tmp_path, "nsq_to_file", *folders.flags(nsqd, *more)) as tool:
            goal = len(bodies) - kill * 3000
            wait_until(lambda goal=goal: unfinished(nsqd, "t", CHANNEL) <= goal, "some are finished", 30)
            tool.kill()
        gone(nsqd)

    left = read_all(nsqd, "t", CHANNEL)
    assert left
    assert set(bodies) - set(left) <= set(folders.lines())
    # Each line is a body or, where a kill tore it, the beginning of a body.
    assert {line for line in folders.lines() if len(line) == 7} <= set(bodies)


def test_leftovers_of_killed_run_are_finished_by_the_next(nsqd, folders, tmp_path):
    publish(nsqd, "t", [b"a"], CHANNEL)
    flags = folders.flags(nsqd, "-gzip", f"-work-dir={folders.work}")
    with Tool(tmp_path, "nsq_to_file", *flags) as tool:
        wait_until(lambda: unfinished(nsqd, "t", CHANNEL) == 0, "it is finished")
        tool.kill()
    assert (folders.files(), len(folders.files(folders.work))) == ([], 1)

    with Tool(tmp_path, "nsq_to_file", *flags) as tool:
        wait_until(folders.files, "the leftover is moved")
        assert tool.stop() == 0

    assert [contents(path) for path in folders.files()] == [b"a\n"]
    assert folders.files(folders.work) == []


@pytest.mark.parametrize("work", [False, True])
def test_hang_up_finishes_file_and_the_next_message_opens_another(nsqd, folders, tmp_path, work):
    publish(nsqd, "t", [b"a"], CHANNEL)
    flags = [f"-work-dir={folders.work}"] if work else []
    with Tool(tmp_path, "nsq_to_file", *folders.flags(nsqd, *flags)) as tool:
        tool.until_said(SYNCED)
        if not work:
            # Rename the file first, as log rotation does.
            [path] = folders.files()
            path.rename(path.with_suffix(".old"))
        tool.process.send_signal(signal.SIGHUP)
        tool.until_said("moving finished file" if work else "closed ")
        publish(nsqd, "t", [b"b"])
        wait_until(lambda: unfinished(nsqd, "t", CHANNEL) == 0, "the next message is finished")
        tool.process.send_signal(signal.SIGHUP)
        tool.process.send_signal(signal.SIGHUP)

        assert tool.stop() == 0
    assert sorted(contents(path) for path in folders.files()) == [b"a\n", b"b\n"]


@pytest.mark.parametrize(("what", "work"), [("file", False), ("folder", True)])
def test_removed_file_is_opened_again_before_its_messages_are_finished(nsqd, folders, tmp_path, what, work):
    publish(nsqd, "t", [b"a"], CHANNEL)
    flags = ["-sync-interval=200ms", *([f"-work-dir={folders.work}"] if work else [])]
    with Tool(tmp_path, "nsq_to_file", *folders.flags(nsqd, *flags)) as tool:
        wait_until(lambda: unfinished(nsqd, "t", CHANNEL) == 0, "the first message is finished")
        folder = folders.work if work else folders.out
        for path in [one for one in folder.rglob("*") if one.is_file()]:
            path.unlink()
        if what == "folder":
            shutil.rmtree(folder)
        publish(nsqd, "t", [b"b", b"c"])
        tool.until_said("was removed while it was written")
        wait_until(lambda: unfinished(nsqd, "t", CHANNEL) == 0, "all messages are finished")

        assert tool.stop() == 0
    assert sorted(folders.lines()) == [b"b", b"c"]


@pytest.mark.executed
def test_hang_up_before_there_is_file_does_not_end_it(nsqd, folders, tmp_path):
    publish(nsqd, "t", [b"a"], CHANNEL)
    with Tool(tmp_path, "nsq_to_file", *folders.flags(nsqd)) as tool:
        wait_until(lambda: ignores_or_handles(tool.process.pid, signal.SIGHUP), "SIGHUP does not end it")
        for _ in range(20):
            tool.process.send_signal(signal.SIGHUP)
        wait_until(lambda: unfinished(nsqd, "t", CHANNEL) == 0, "the message is finished")
        assert tool.stop() == 0

    assert folders.lines() == [b"a"]


def test_hang_ups_while_messages_flow_lose_and_double_nothing(nsqd, folders, tmp_path):
    bodies = numbered(10_000)
    flags = folders.flags(nsqd, f"-work-dir={folders.work}", "-max-in-flight=100")
    with Tool(tmp_path, "nsq_to_file", *flags) as tool:
        for part in range(0, 10_000, 2500):
            # Publish new messages each time, because the tool may finish them before this test looks.
            publish(nsqd, "t", bodies[part : part + 2500], CHANNEL)
            wait_until(lambda: unfinished(nsqd, "t", CHANNEL) <= 1500, "some are finished", 30)
            files = len(folders.files())
            tool.process.send_signal(signal.SIGHUP)
            wait_until(lambda files=files: len(folders.files()) > files, "the file is moved")
        wait_until(lambda: unfinished(nsqd, "t", CHANNEL) == 0, "all are finished", 30)
        assert tool.stop() == 0

    assert sorted(folders.lines()) == bodies


def test_idle_files_are_rotated_in_work_folder_too(nsqd, folders, tmp_path):
    publish(nsqd, "t", [b"a"], CHANNEL)
    flags = folders.flags(
        nsqd,
        f"-work-dir={folders.work}",
        "-rotate-interval=200ms",
        "-sync-interval=100ms",
        "-skip-empty-files",
    )
    with Tool(tmp_path, "nsq_to_file", *flags) as tool:
        wait_until(folders.files, "the first file is finished")
        publish(nsqd, "t", [b"b"])
        wait_until(lambda: len(folders.files()) == 2, "the second file is finished")

        assert tool.stop() == 0
    assert folders.lines() == [b"a", b"b"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_it_with_0_and_nothing_is_written_twice(nsqd, folders, tmp_path, number):
    bodies = numbered(20_000)
    publish(nsqd, "t", bodies, CHANNEL)
    flags = folders.flags(nsqd, "-max-in-flight=50", f"-work-dir={folders.work}")
    with Tool(tmp_path, "nsq_to_file", *flags) as tool:
        wait_until(lambda: unfinished(nsqd, "t", CHANNEL) < 19_000, "it writes")
        assert tool.stop(number) == 0

    assert folders.files(folders.work) == []
    left = read_all(nsqd, "t", CHANNEL)
    assert left
    assert sorted(folders.lines() + left) == bodies


def test_topics_of_cluster_are_archived_and_new_ones_follow(cluster, folders, tmp_path):
    lookupd, nsqd = cluster.nsqlookupd(), cluster.nsqd()
    publish(nsqd, "logs.a", [b"a"], CHANNEL)
    publish(nsqd, "other", [b"x"], CHANNEL)
    wait_until(lambda: len(lookupd.get("/topics")["topics"]) == 2, "the topics are registered")
    with Tool(
        tmp_path,
        "nsq_to_file",
        "-topic-pattern=^logs",
        "-topic-refresh=300ms",
        f"-lookupd-http-address={lookupd.http_address}",
        f"-output-dir={folders.out}",
        "-consumer-opt=lookupd_poll_interval,100ms",
    ) as tool:
        wait_until(lambda: unfinished(nsqd, "logs.a", CHANNEL) == 0, "the first topic is archived")
        publish(nsqd, "logs.b", [b"b"], CHANNEL)
        wait_until(lambda: unfinished(nsqd, "logs.b", CHANNEL) == 0, "the new topic is archived")
        assert unfinished(nsqd, "other", CHANNEL) == 1

        assert tool.stop() == 0
    assert folders.lines() == [b"a", b"b"]


def test_stalled_disk_stops_intake_without_requeues(nsqd, folders, tmp_path):
    bodies = [letter * 100_000 for letter in (b"a", b"b", b"c")]  # more than a pipe holds
    publish(nsqd, "t", bodies, CHANNEL)
    folders.out.mkdir(parents=True)
    os.mkfifo(folders.out / "t.log")
    options = ["-consumer-opt=msg_timeout,2s", "-consumer-opt=max_attempts,2"]
    with Tool(
        tmp_path, "nsq_to_file", *folders.flags(nsqd, "-filename-format=<TOPIC>.log", *options)
    ) as tool:
        wait_until(lambda: all_wait(nsqd, 3), "all have timed out, and it takes no more")
        tool.kill()

    gone(nsqd)
    assert sorted(read_all(nsqd, "t", CHANNEL)) == bodies


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["-output-dir=/dev", "-filename-format=full"], b"[Errno 28] No space left on device"),
        (["-output-dir=/dev/null/out"], b"[Errno 20] Not a directory"),
        # /proc is always a separate device.
        (["-output-dir=/tmp", "-work-dir=/proc/work"], b"are on different devices: no file could be moved"),
    ],
)
def test_full_disk_ends_it_with_nothing_finished(nsqd, flags, sentence):
    publish(nsqd, "t", [b"a", b"b"], CHANNEL)

    ended = run_tool("nsq_to_file", "-topic=t", f"-nsqd-tcp-address={nsqd.tcp_address}", *flags)

    assert ended.returncode == 1
    assert sentence in ended.stderr
    assert read_all(nsqd, "t", CHANNEL) == [b"a", b"b"]


def test_nsqd_that_restarts_is_read_on(nsqd, folders, tmp_path):
    publish(nsqd, "t", [b"a"], CHANNEL)
    flags = folders.flags(nsqd, "-sync-interval=200ms", "-consumer-opt=lookupd_poll_interval,200ms")
    with Tool(tmp_path, "nsq_to_file", *flags) as tool:
        wait_until(lambda: unfinished(nsqd, "t", CHANNEL) == 0, "it is finished")
        nsqd.kill()
        nsqd.start()
        publish(nsqd, "t", [b"b"])
        wait_until(lambda: unfinished(nsqd, "t", CHANNEL) == 0, "the new one is finished", 20)

        assert tool.stop() == 0
    assert set(folders.lines()) == {b"a", b"b"}
