"""nsq_tail against real daemons."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nsqclient import __version__
from tests.support.certificates import Authority
from tests.support.nsqd_http import channel_stats
from tests.support.tools import (
    Tool,
    command,
    environment,
    publish,
    read_all,
    run_tool,
    unfinished,
)
from tests.support.waiting import wait_until

CLOSING = 4
"""The state of a client that has sent CLS, in the statistics of nsqd."""


def address(nsqd) -> str:
    return f"-nsqd-tcp-address={nsqd.tcp_address}"


def test_message_is_its_body_and_newline(nsqd):
    publish(nsqd, "t", [b"m1", b"\x00\xff", b"two\nlines"], "c")

    ended = run_tool("nsq_tail", "-topic=t", "-channel=c", "-n=3", "-print-topic", address(nsqd))

    assert (ended.returncode, ended.stdout) == (0, b"t | m1\nt | \x00\xff\nt | two\nlines\n")
    assert b"Adding consumer for topic: t\n" in ended.stderr


def test_messages_that_are_not_shown_lose_no_attempt(nsqd):
    publish(nsqd, "t", [b"%d" % n for n in range(6)], "c")

    first = run_tool("nsq_tail", "-topic=t", "-channel=c", "-n=1", address(nsqd))
    second = run_tool("nsq_tail", "-topic=t", "-channel=c", "-n=2", address(nsqd))

    assert first.stdout + second.stdout == b"0\n1\n2\n"
    stats = channel_stats(nsqd, "t", "c")
    assert (stats["requeue_count"], stats["in_flight_count"]) == (0, 0)
    waiting = nsqd.get("/messages?topic=t&channel=c&state=waiting")["messages"]
    assert [(one["body"], one.get("attempts", 0)) for one in waiting] == [("3", 0), ("4", 0), ("5", 0)]


def test_n_counts_messages_of_all_topics(nsqd):
    for topic in ("a", "b"):
        publish(nsqd, topic, [b"x"] * 2, "c")

    ended = run_tool("nsq_tail", "-topic=a", "-topic=b", "-channel=c", "-n=3", address(nsqd))

    assert ended.stdout == b"x\n" * 3
    assert unfinished(nsqd, "a", "c") + unfinished(nsqd, "b", "c") == 1


def test_tail_without_channel_shows_later_messages_and_leaves_nothing(nsqd, tmp_path):
    publish(nsqd, "t", [b"early"])
    nsqd.post("/channel/create?topic=t&channel=keeps-the-backlog")
    with Tool(tmp_path, "nsq_tail", "-topic=t", address(nsqd)) as tool:
        channels = wait_until(
            lambda: [
                one["channel_name"]
                for one in nsqd.get("/stats?format=json&topic=t")["topics"][0]["channels"]
                if one["client_count"]
            ],
            "it has subscribed",
        )
        publish(nsqd, "t", [b"late"])
        wait_until(lambda: tool.printed() == b"late\n", "the message is printed")
        assert tool.stop() == 0

    assert channels[0].startswith("tail")
    assert channels[0].endswith("#ephemeral")


def test_messages_come_from_all_nsqd_that_lookupd_knows(cluster, tmp_path):
    lookupd = cluster.nsqlookupd()
    nsqds = [cluster.nsqd(), cluster.nsqd()]
    for number, nsqd in enumerate(nsqds):
        publish(nsqd, "t", [b"%d" % number], "c")
    wait_until(lambda: len(lookupd.get("/nodes")["producers"]) == 2, "both have registered")

    ended = run_tool(
        "nsq_tail",
        "-topic=t",
        "-channel=c",
        "-n=2",
        f"-lookupd-http-address={lookupd.http_address}",
        "-consumer-opt=lookupd_poll_interval,100ms",
        # Only one nsqd may send the last message, and it may be the one that has none.
        "-consumer-opt=low_rdy_idle_timeout,1s",
        "-consumer-opt=rdy_redistribute_interval,100ms",
    )

    assert sorted(ended.stdout.split()) == [b"0", b"1"]


def test_kill_loses_nothing_that_was_finished(nsqd, tmp_path):
    bodies = [b"%06d" % n for n in range(20_000)]
    publish(nsqd, "t", bodies, "c")
    with Tool(tmp_path, "nsq_tail", "-topic=t", "-channel=c", address(nsqd)) as tool:
        wait_until(lambda: len(tool.printed()) > 10_000, "it prints")
        tool.kill()

    wait_until(lambda: channel_stats(nsqd, "t", "c")["client_count"] == 0, "nsqd has noticed")
    left = set(read_all(nsqd, "t", "c"))
    assert left
    assert set(bodies) - left <= set(tool.printed().split(b"\n"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signal_ends_it_with_0_and_nothing_is_printed_twice(nsqd, tmp_path, number):
    bodies = [b"%06d" % n for n in range(20_000)]
    publish(nsqd, "t", bodies, "c")
    with Tool(tmp_path, "nsq_tail", "-topic=t", "-channel=c", address(nsqd)) as tool:
        wait_until(lambda: len(tool.printed()) > 1000, "it prints")
        assert tool.stop(number) == 0

    assert sorted(tool.printed().split() + read_all(nsqd, "t", "c")) == bodies


@contextmanager
def piped(nsqd, *more: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run nsq_tail with a pipe as its stdout; yields the process and the reader, which the test closes."""
    reader, writer = os.pipe()
    with subprocess.Popen(
        [*command("nsq_tail"), "-topic=t", "-channel=c", *more, address(nsqd)],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        os.close(writer)
        yield process, reader


# Together more than a pipe holds.
LARGE = [letter * 100_000 for letter in (b"a", b"b", b"c")]


def test_nsq_tail_finishes_nothing_unprinted_when_its_reader_ends(nsqd):
    publish(nsqd, "t", [b"x"] * 3, "c")
    with piped(nsqd) as (process, reader):
        os.close(reader)
        _, said = process.communicate(timeout=20)

    assert process.returncode == 128 + signal.SIGPIPE
    assert b"ERROR" not in said
    assert len(read_all(nsqd, "t", "c")) == 3


def test_unread_pipe_does_not_prevent_exit(nsqd):
    publish(nsqd, "t", LARGE[:1], "c")
    with piped(nsqd, "-n=1") as (process, reader):
        wait_until(lambda: channel_stats(nsqd, "t", "c")["in_flight_count"], "it has a message")
        with os.fdopen(reader, "rb") as printed:
            taken = printed.read()
        process.communicate(timeout=20)

    assert (taken, process.returncode) == (LARGE[0] + b"\n", 0)


def test_stalled_reader_stops_intake_without_requeues(nsqd):
    publish(nsqd, "t", LARGE, "c")

    def all_wait() -> bool:
        stats = channel_stats(nsqd, "t", "c")
        ready = [client["ready_count"] for client in stats["clients"]]
        return stats["timeout_count"] >= 3 and stats["depth"] == 3 and ready == [0]

    options = ["-consumer-opt=msg_timeout,2s", "-consumer-opt=max_attempts,2"]
    with piped(nsqd, *options) as (process, reader):
        wait_until(all_wait, "all have timed out, and it takes no more")
        process.kill()
        os.close(reader)

    wait_until(lambda: channel_stats(nsqd, "t", "c")["client_count"] == 0, "nsqd has noticed")
    assert sorted(read_all(nsqd, "t", "c")) == LARGE


def test_reader_gets_all_messages_after_stall(nsqd):
    publish(nsqd, "t", LARGE, "c")
    with piped(nsqd, "-consumer-opt=msg_timeout,1s") as (process, reader):
        wait_until(lambda: channel_stats(nsqd, "t", "c")["timeout_count"] >= 3, "all have timed out")
        with os.fdopen(reader, "rb") as printed:
            lines = [printed.readline().rstrip(b"\n") for _ in LARGE]
            publish(nsqd, "t", [b"later"])
            while lines[-1] != b"later":
                lines.append(printed.readline().rstrip(b"\n"))
            wait_until(lambda: unfinished(nsqd, "t", "c") == 0, "all are finished")
            process.send_signal(signal.SIGTERM)
            assert process.wait(40) == 0

    assert sorted(set(lines)) == [*LARGE, b"later"]


def test_nsq_tail_requeues_unprinted_messages_when_its_reader_ends_after_signal(nsqd):
    # As Ctrl-C does in a terminal: it reaches both ends of the pipe.
    publish(nsqd, "t", LARGE, "c")
    with piped(nsqd) as (process, reader):
        wait_until(lambda: channel_stats(nsqd, "t", "c")["in_flight_count"] == 3, "it has the messages")
        assert os.read(reader, 1)  # it writes, and blocks because the pipe is full
        process.send_signal(signal.SIGINT)
        wait_until(lambda: channel_stats(nsqd, "t", "c")["clients"][0]["state"] == CLOSING, "it stops")
        os.close(reader)
        _, said = process.communicate(timeout=20)

    assert process.returncode == 128 + signal.SIGPIPE
    assert b"not handled in time" not in said
    assert len(read_all(nsqd, "t", "c")) == 3


def test_unreachable_nsqd_ends_it_with_sentence(nsqd):
    nsqd.stop()

    ended = run_tool("nsq_tail", "-topic=t", "-channel=c", address(nsqd))

    assert ended.returncode == 1
    assert b"ERROR: [t/c] " in ended.stderr


def test_missing_nsqd_does_not_block_other_one(nsqd):
    publish(nsqd, "t", [b"x"], "c")

    ended = run_tool(
        "nsq_tail", "-topic=t", "-channel=c", "-n=1", "-nsqd-tcp-address=127.0.0.1:1", address(nsqd)
    )

    assert (ended.stdout, ended.returncode) == (b"x\n", 0)
    assert b"127.0.0.1:1: connection refused" in ended.stderr


def test_tool_names_itself_to_nsqd(nsqd, tmp_path):
    publish(nsqd, "t", [b"x"], "c")
    with Tool(
        tmp_path, "nsq_tail", "-topic=t", "-channel=c", f"-nsqd-tcp-address={nsqd.tcp_address}"
    ) as tool:
        clients = wait_until(lambda: channel_stats(nsqd, "t", "c")["clients"], "it has subscribed")

        assert clients[0]["user_agent"] == f"nsq_tail/1.3.0 nsqclient/{__version__}"
        assert tool.stop() == 0


def test_options_of_client_are_passed_through(cluster, tmp_path):
    authority = Authority(tmp_path / "ca")
    nsqd = cluster.nsqd(*authority.flags, "--tls-required=tcp-https")
    publish(nsqd, "t", [b"secret"], "c")
    options = ["tls_v1", f"tls-root-ca-file,{authority.file}", "snappy", "client_id,me"]

    ended = run_tool(
        "nsq_tail",
        "-topic=t",
        "-channel=c",
        "-n=1",
        address(nsqd),
        *(f"-consumer-opt={one}" for one in options),
    )
    plain = run_tool("nsq_tail", "-topic=t", "-channel=c", "-n=1", address(nsqd))

    assert (ended.returncode, ended.stdout) == (0, b"secret\n")
    assert plain.returncode == 1
