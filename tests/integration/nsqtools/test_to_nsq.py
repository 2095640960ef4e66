"""to_nsq against real daemons."""

import asyncio
import os
import re
import subprocess

import pytest

from nsqclient import Producer
from nsqtools.to_nsq.publisher import WINDOW, Publisher
from tests.support import beside
from tests.support.peers import answer_identify, scripted_peer
from tests.support.tools import Tool, command, environment, read_all, run_tool, unfinished
from tests.support.waiting import eventually, wait_until


@pytest.fixture(autouse=True)
def channel_c(nsqd):
    with_channel(nsqd)


def with_channel(nsqd):
    nsqd.create("t", "c")


def flags(*nsqds) -> list[str]:
    return ["-topic=t", *(f"-nsqd-tcp-address={nsqd.tcp_address}" for nsqd in nsqds)]


@pytest.mark.parametrize(
    ("more", "stdin", "records"),
    [
        ([], b"a\nb\n", [b"a", b"b"]),
        ([], b"a\n\n\nxyz", [b"a", b"xyz"]),
        ([], b"", []),
        (["-delimiter=,"], b"a,b\nc", [b"a", b"b\nc"]),
    ],
)
def test_records_become_messages_also_the_last(nsqd, more, stdin, records):
    ended = run_tool("to_nsq", *flags(nsqd), *more, stdin=stdin)

    assert (ended.returncode, ended.stdout) == (0, b"")
    assert read_all(nsqd, "t", "c") == records


@pytest.mark.parametrize(
    ("name", "way", "sentence"),
    [
        (
            "records",
            os.O_WRONLY | os.O_CREAT,
            b"ERROR: failed to read from stdin - bad file descriptor; of 0",
        ),
        (".", os.O_RDONLY, b"is a directory"),  # Python's own words: it does not start
    ],
)
def test_stdin_that_cannot_be_read_is_error_with_sentence(nsqd, tmp_path, name, way, sentence):
    stdin = os.open(tmp_path / name, way)
    try:
        words = [*command("to_nsq"), *flags(nsqd)]
        ended = subprocess.run(words, stdin=stdin, env=environment(), capture_output=True, check=False)
    finally:
        os.close(stdin)

    assert ended.returncode == 1
    if beside.OURS:
        assert sentence in ended.stderr


def test_nsqds_get_all_records_in_order(cluster, nsqd):
    other = cluster.nsqd()
    with_channel(other)
    records = [b"%d" % n for n in range(5000)]

    ended = run_tool("to_nsq", *flags(nsqd, other), stdin=b"\n".join(records))

    assert ended.returncode == 0
    assert read_all(nsqd, "t", "c") == read_all(other, "t", "c") == records


def test_records_are_sent_as_they_come(nsqd, tmp_path):
    with Tool(tmp_path, "to_nsq", *flags(nsqd)) as tool:
        tool.stdin.write(b"first\nsec")
        tool.stdin.flush()
        wait_until(lambda: unfinished(nsqd, "t", "c") == 1, "the first record is there")

        assert tool.process.poll() is None


def test_signal_ends_it_with_0_and_read_records_are_published(nsqd, tmp_path):
    with Tool(tmp_path, "to_nsq", *flags(nsqd)) as tool:
        tool.stdin.write(b"a\nb\nunfinished")
        tool.stdin.flush()
        wait_until(lambda: unfinished(nsqd, "t", "c") == 2, "it publishes")

        assert tool.stop() == 0
    assert "2 records are published; 10 bytes of an unfinished record are left out" in tool.said()
    assert read_all(nsqd, "t", "c") == [b"a", b"b"]


def test_rate_is_kept(nsqd):
    ended = run_tool("to_nsq", *flags(nsqd), "-rate=20", stdin=b"x\n" * 11)

    assert b"Throttling messages rate to max:20/second\n" in ended.stderr
    assert len(read_all(nsqd, "t", "c")) == 11


def test_records_confirmed_by_failing_nsqd_are_there_after_restart(nsqd, tmp_path):
    with Tool(tmp_path, "to_nsq", *flags(nsqd)) as tool:
        tool.stdin.write(b"".join(b"%07d\n" % n for n in range(2000)))
        tool.stdin.flush()
        wait_until(lambda: unfinished(nsqd, "t", "c") == 2000, "they are there")
        nsqd.kill()
        tool.stdin.write(b"more\n" * 10)
        tool.stdin.close()

        assert tool.process.wait(20) == 1
    sent, confirmed = re.findall(r"of (\d+) records (\d+) were confirmed by nsqd", tool.said())[0]
    assert (int(sent), int(confirmed)) == (2010, 2000)
    nsqd.start()
    assert read_all(nsqd, "t", "c") == [b"%07d" % n for n in range(2000)]


def test_unreachable_nsqd_ends_it_with_sentence(cluster, nsqd):
    other = cluster.nsqd()
    other.stop()

    ended = run_tool("to_nsq", *flags(nsqd, other), stdin=b"x\n")

    assert ended.returncode == 1
    if beside.OURS:
        assert b"of 1 records 0 were confirmed by each of 2 nsqd\n" in ended.stderr


def test_oversized_record_is_error(cluster):
    nsqd = cluster.nsqd("--max-msg-size=100")

    ended = run_tool("to_nsq", *flags(nsqd), stdin=b"ok\n" + b"x" * 101 + b"\nlater\n")

    assert ended.returncode == 1
    assert b"E_BAD_MESSAGE" in ended.stderr


def test_kill_leaves_whole_records_behind(nsqd, tmp_path):
    with Tool(tmp_path, "to_nsq", *flags(nsqd)) as tool:
        tool.stdin.write(b"".join(b"%07d\n" % n for n in range(50_000)))
        tool.kill()

    got = read_all(nsqd, "t", "c")
    assert got == [b"%07d" % n for n in range(len(got))]


async def test_few_records_are_in_doubt_when_destination_falls_silent():
    async def say_nothing(reader, writer):
        await answer_identify(reader, writer)
        await reader.read()

    async with scripted_peer(say_nothing) as address, Producer(address) as producer:
        publishing = Publisher("t", [producer])

        async def send_on():
            while True:
                await publishing.send(b"record")

        sending = asyncio.create_task(send_on())
        await eventually(lambda: publishing.sent == WINDOW, "as many are sent as may be unconfirmed")
        for _ in range(100):
            await asyncio.sleep(0)

        assert publishing.sent == WINDOW
        sending.cancel()
        await producer.close(0)
