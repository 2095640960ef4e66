"""nsqd-data on the files of a real nsqd, whole and damaged in many ways."""

import io
import json
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from nsqd.data.cli import main
from nsqd.log.layout import APPEND_HEADER_BYTES
from tests.integration.nsqd.restarts import copied, restored
from tests.support.processes import Cluster
from tests.support.stores import appends_of, flip
from tests.support.waiting import wait_until
from tests.support.wire import Wire, fin, pub, req
from tests.support.youzan import pub_ext

BATCHES = 40
BODIES = [f"{n}-{which}-{'.' * 300}" for n in range(BATCHES) for which in "ab"]


@pytest.fixture(scope="module")
def nsqds(tmp_path_factory):
    """A filled nsqd that was killed and one that was stopped, each with a copy of its folder."""
    cluster = Cluster(tmp_path_factory.mktemp("data"))
    killed, stopped = filled(cluster), filled(cluster)
    wait_until(lambda: pending_on_disk(killed) == 2 * BATCHES - 1, "a checkpoint says what is finished", 10)
    killed.kill()
    # Its files are durable, so damage is not the effect of a power cut.
    assert stopped.stop() == 0
    for nsqd in (killed, stopped):
        copied(nsqd)
    yield killed, stopped
    cluster.close()


@pytest.fixture
def nsqd(nsqds):
    """The filled nsqd, killed after a checkpoint had recorded all of it."""
    return restored(nsqds[0])


@pytest.fixture
def clean(nsqds):
    """The filled nsqd, stopped cleanly."""
    return restored(nsqds[1])


def filled(cluster):
    """A running nsqd. Topic t has several segments; the backlog of channel ch is all messages but the
    first, and one of them was delivered before; channel other is paused.
    Topic empty has no channel and one message.
    """
    nsqd = cluster.nsqd("--max-bytes-per-file=8192")
    for path in (
        "/topic/create?topic=t",
        "/channel/create?topic=t&channel=ch",
        "/channel/create?topic=t&channel=other",
        "/channel/pause?topic=t&channel=other",
    ):
        nsqd.post(path)
    for n in range(BATCHES):
        nsqd.post("/mpub?topic=t", "\n".join(BODIES[2 * n : 2 * n + 2]).encode())
    nsqd.post("/pub?topic=empty", b"\xff\xfe binary")
    with Wire(("127.0.0.1", nsqd.tcp_port)) as wire:
        wire.subscribe("t", "ch", ready=2)
        first, second = wire.messages(2)
        wire.send(b"RDY 0\n", fin(first), req(second, 0))
        wire.quiet()
    return nsqd


def pending_on_disk(nsqd):
    done = data(nsqd, "summary", "--topic=t", "--json")
    if done.returncode:
        return None
    return next(c["waiting"] for c in json.loads(done.stdout)["channels"] if c["channel"] == "ch")


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def data(nsqd, command, *flags):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([command, f"--data-path={nsqd.folder}", *flags])
    return Done(code, out.getvalue(), err.getvalue())


def lines(nsqd, command, *flags, code=0):
    done = data(nsqd, command, *flags)
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout.splitlines()


def content(nsqd):
    """Every file of the data path except the log of the process."""
    files = (path for path in nsqd.folder.rglob("*") if path.is_file() and path.name != "nsqd.log")
    return {str(path.relative_to(nsqd.folder)): path.read_bytes() for path in files}


def segments(nsqd):
    return sorted((nsqd.folder / "t.topic").glob("*.log"))


def delivered(nsqd, connect, count):
    nsqd.start()
    wire = connect(nsqd)
    wire.subscribe("t", "ch", ready=2500)
    return sorted(message.body.decode() for message in wire.messages(count))


# --- looking ---


def test_undamaged_data_path_has_no_findings(clean):
    lines(clean, "repair", "--write")  # the last indexes may not be written yet
    before = content(clean)
    assert lines(clean, "verify") == []
    assert lines(clean, "repair") == []
    assert lines(clean, "repair", "--write") == []
    assert content(clean) == before


def test_index_that_kill_kept_from_being_written_is_no_damage_and_is_made(nsqd):
    first = segments(nsqd)[0].with_suffix(".index")
    first.unlink(missing_ok=True)
    assert lines(nsqd, "verify") == []
    assert any(line.startswith(f"would write t.topic/{first.name}") for line in lines(nsqd, "repair"))
    assert not first.exists()
    assert lines(nsqd, "repair", "--write")[-1] == "done"
    assert first.exists()
    assert lines(nsqd, "repair") == []


def test_data_tool_is_command_of_its_own(nsqd):
    command = [sys.executable, "-m", "nsqd.data", "verify", f"--data-path={nsqd.folder}"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_summary_shows_backlog_of_each_channel(nsqd):
    empty, t = (json.loads(line) for line in lines(nsqd, "summary", "--json"))
    assert (empty["topic"], empty["channels"], empty["pending"]["waiting"]) == ("empty", [], 1)
    ch, other = sorted(t["channels"], key=lambda channel: channel["channel"])
    assert (ch["waiting"], ch["delivered_before"], ch["paused"]) == (2 * BATCHES - 1, 1, False)
    assert (other["waiting"], other["delivered_before"], other["paused"]) == (2 * BATCHES, 0, True)
    assert [one["file"] for one in t["segments"]] == [path.name for path in segments(nsqd)]
    assert sum(one["messages"] for one in t["segments"]) == 2 * BATCHES
    (extent,) = t["extents"]
    assert extent["end"] - extent["first"] == 2 * BATCHES
    assert all(one["from"] <= one["to"] for one in t["segments"])
    assert lines(nsqd, "summary", "--topic=empty")[0].startswith("topic empty: 1 message, ")
    text = lines(nsqd, "summary", "--topic=t")
    assert text[0].startswith(f"topic t: {2 * BATCHES} messages, ")
    assert f"  channel ch: {2 * BATCHES - 1} waiting, 0 deferred, 1 delivered before" in text
    assert f"  channel other, paused: {2 * BATCHES} waiting, 0 deferred" in text


def test_dump_has_every_message_once_and_in_order(nsqd):
    binary, *messages = (json.loads(line) for line in lines(nsqd, "dump", "--pending"))
    assert binary["body_base64"] == "//4gYmluYXJ5"
    assert (binary["pending_on"], binary["no_channel_yet"]) == ([], True)
    assert [message["body"] for message in messages] == BODIES
    assert [message["sequence"] for message in messages] == sorted(
        message["sequence"] for message in messages
    )
    assert messages[0]["pending_on"] == ["other"]
    assert all(message["pending_on"] == ["ch", "other"] for message in messages[1:])
    assert messages[1]["attempts"] == {"ch": 1}


def test_dump_has_headers_of_messages_and_verify_finds_nothing(cluster, connect):
    nsqd = cluster.nsqd()
    wire = connect(nsqd)
    wire.send(pub("h", b"1"), pub_ext("h", b'{"a":"b"}', b"2"), pub_ext("h", b"", b"3"))
    wire.ok(3)
    wire.close()
    nsqd.kill()

    messages = [json.loads(line) for line in lines(nsqd, "dump", "--topic=h")]

    assert [(one["body"], one.get("headers")) for one in messages] == [
        ("1", None),
        ("2", {"a": "b"}),
        ("3", None),
    ]
    assert lines(nsqd, "verify") == []


@pytest.mark.parametrize("command", ["dump --pending", "summary"])
def test_reader_who_has_gone_ends_it_without_word(clean, command):
    tool = f"{sys.executable} -m nsqd.data {command} --data-path={clean.folder}"
    # The reader of the pipe ends before there is anything to read.
    done = subprocess.run(["sh", "-c", f"{tool} | true"], capture_output=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == (b"", b"")


@pytest.mark.parametrize("command", ["dump", "summary"])
def test_full_disk_behind_stdout_is_failure_and_no_damage(clean, command):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "nsqd.data", command, f"--data-path={clean.folder}"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )

    assert done.returncode == 2
    assert done.stderr == b"nsqd-data: failed to write to stdout - no space left on device\n"


def test_part_is_dumped_by_sequence_id_time_and_channel(nsqd):
    whole = [json.loads(line) for line in lines(nsqd, "dump", "--topic=t")]
    third, fifth = whole[2], whole[4]

    def part(*flags):
        return [json.loads(line) for line in lines(nsqd, "dump", "--topic=t", *flags)]

    assert part(f"--start={third['sequence']}", f"--end={fifth['sequence']}") == whole[2:4]
    assert part(f"--id={fifth['id']}") == [fifth]
    assert part("--channel=ch") == whole[1:]
    assert part("--to-time=2001-01-01T00:00:00Z") == []
    assert part("--from-time=2001-01-01T00:00:00Z") == whole


def test_data_tool_repairs_nothing_while_nsqd_runs(nsqd):
    nsqd.start()
    assert "an nsqd runs on " in data(nsqd, "summary").stderr
    refused = data(nsqd, "repair", "--write")
    assert refused.returncode == 2
    assert "possibly in use by another instance of nsqd" in refused.stderr


# --- damage ---


def one_bit_in_the_data(nsqd):
    log = segments(nsqd)[1]
    flip(log, 8 * (appends_of(log)[1][0] + APPEND_HEADER_BYTES + 100))


def one_byte_of_a_header(nsqd):
    log = segments(nsqd)[1]
    flip(log, 8 * (appends_of(log)[1][0] + 20))


def several_bytes_of_a_header(nsqd):
    log = segments(nsqd)[1]
    at = appends_of(log)[1][0]
    for byte in (3, 20, 40):
        flip(log, 8 * (at + byte))


def a_copy_of_the_file_header(nsqd):
    flip(segments(nsqd)[1], 8 * 80)


def an_index(nsqd):
    flip(segments(nsqd)[0].with_suffix(".index"), 8 * 50)


def a_checkpoint(nsqd):
    flip(max((nsqd.folder / "t.topic").glob("checkpoint.?"), key=lambda path: path.stat().st_mtime_ns), 800)


def both_checkpoints(nsqd):
    for path in (nsqd.folder / "t.topic").glob("checkpoint.?"):
        flip(path, 800)


def both_copies_of_a_file_header(nsqd):
    for byte in (20, 92):
        flip(segments(nsqd)[1], 8 * byte)


def the_reservation(nsqd):
    flip(nsqd.folder / "reservation", 8 * 20)


def a_lost_segment(nsqd):
    segments(nsqd)[1].unlink()


@pytest.mark.parametrize(
    ("damage", "found", "mended", "lost"),
    [
        (one_bit_in_the_data, "2 messages from sequence ", False, 2),
        (one_byte_of_a_header, "one byte of a header is wrong; nothing is lost", True, 0),
        (several_bytes_of_a_header, "bytes cannot be read; what they held is lost", False, 2),
        (a_copy_of_the_file_header, "one copy of the file header is damaged", True, 0),
        (an_index, "the index cannot be used", True, 0),
        (a_checkpoint, "checksum mismatch", True, 0),
        (both_checkpoints, "checksum mismatch", True, 0),
        (both_copies_of_a_file_header, "is put aside", False, None),
        (the_reservation, "one of its two slots is damaged", False, 0),
        (a_lost_segment, "is gone", False, None),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_damage_is_named_and_repaired(clean, connect, tmp_path, damage, found, mended, lost):
    damage(clean)
    before = content(clean)
    told = lines(clean, "verify", code=1)
    assert found in told[0]
    # The tool leaves the reservation to the next start.
    lines(clean, "repair", code=0 if damage is the_reservation else 1)
    assert content(clean) == before, "nothing is changed without --write"
    unrepaired = tmp_path / "unrepaired"
    shutil.copytree(clean.folder, unrepaired)

    data(clean, "repair", "--write")

    if mended:
        assert content(clean) != before
        assert lines(clean, "verify") == []
    # With and without the repair the same messages are delivered: all that are not lost.
    dumped = [
        json.loads(line) for line in data(clean, "dump", "--topic=t", "--channel=ch").stdout.splitlines()
    ]
    expected = sorted(message["body"] for message in dumped)
    if lost is not None:
        kept = len(BODIES) - lost
        # The checkpoint before the last may lack the FIN; without any checkpoint all is pending again.
        again = {a_checkpoint: {0, 1}, both_checkpoints: {1}}.get(damage, {0})
        assert len(expected) - (kept - 1) in again
    assert len(set(expected)) == len(expected)
    assert set(expected) <= set(BODIES)
    assert delivered(clean, connect, len(expected)) == expected
    restored(clean, unrepaired)
    assert delivered(clean, connect, len(expected)) == expected


def test_torn_end_is_cut_as_the_next_start_would(nsqd, connect):
    newest = segments(nsqd)[-1]
    whole = newest.read_bytes()
    with newest.open("ab") as file:
        file.write(bytes(4096))
    assert "the end was not written completely, cut 4096 bytes" in lines(nsqd, "verify", code=1)[0]
    told = lines(nsqd, "repair", code=1)
    assert f"would cut t.topic/{newest.name} to {len(whole)} bytes" in told
    assert newest.stat().st_size == len(whole) + 4096
    assert lines(nsqd, "repair", "--write", code=1)[-1] == "done"
    assert newest.read_bytes() == whole
    assert lines(nsqd, "verify") == []
    assert delivered(nsqd, connect, 2 * BATCHES - 1) == sorted(BODIES[1:])


def test_lost_checkpoints_of_trimmed_log_cost_nothing(nsqd, connect):
    """If only the checkpoints were removed, the next start would take the rest for remains of a power cut."""
    nsqd.start()
    for path in ("/channel/empty?topic=t&channel=ch", "/channel/empty?topic=t&channel=other"):
        nsqd.post(path)
    nsqd.post("/pub?topic=t", b"the last")
    wait_until(lambda: len(segments(nsqd)) == 1, "what is finished is removed", 10)
    wait_until(lambda: len(list((nsqd.folder / "t.topic").glob("checkpoint.?"))) == 2, "both are there", 10)
    nsqd.kill()
    both_checkpoints(nsqd)
    assert data(nsqd, "repair", "--write").returncode == 1
    assert lines(nsqd, "verify") == []
    assert delivered(nsqd, connect, 1) == ["the last"]


def test_messages_that_cannot_be_read_are_named_beside_dump(clean):
    one_bit_in_the_data(clean)
    done = data(clean, "dump", "--topic=t")
    assert done.returncode == 1
    assert "up to 2 messages from sequence " in done.stderr
    assert len(done.stdout.splitlines()) == 2 * BATCHES - 2
