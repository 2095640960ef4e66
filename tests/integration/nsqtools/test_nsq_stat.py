"""nsq_stat against real daemons."""

import re
import signal

import pytest

from tests.support.tools import GO_TOOLS, Tool, ends_though_nobody_reads, original, run_tool
from tests.support.waiting import wait_until

LINE = re.compile(rb" *-?\d+ +-?\d+ \| +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) \| +(\d+) +(\d+) +(\d+) +(\d+)\n")


@pytest.fixture(autouse=True)
def channel_c(nsqd):
    nsqd.create("t", "c")


def flags(nsqd, *more: str) -> list[str]:
    return ["-topic=t", "-channel=c", "-interval=100ms", f"-nsqd-http-address={nsqd.http_address}", *more]


def test_stat_prints_the_wanted_number_of_lines(nsqd):
    nsqd.post("/mpub?topic=t", b"a\nb\nc")

    ended = run_tool("nsq_stat", *flags(nsqd, "-count=2"))

    assert (ended.returncode, ended.stderr) == (0, b"")
    statistics = LINE.findall(ended.stdout)
    assert statistics == [(b"3", b"3", b"0", b"0", b"0", b"0", b"0", b"3", b"0")] * 2
    assert ended.stdout.count(b"ingress") == 1


def test_heads_come_again_after_25_rounds(nsqd):
    ended = run_tool("nsq_stat", *flags(nsqd, "-interval=5ms", "-count=25"))

    assert (ended.returncode, ended.stderr) == (0, b"")
    lines = ended.stdout.splitlines()
    assert [number for number, text in enumerate(lines) if b"ingress" in text] == [1, 27]
    assert len(lines) == 25 + 4


def test_nsqd_are_found_by_way_of_nsqlookupd_and_summed(cluster):
    lookupd = cluster.nsqlookupd()
    for _ in range(2):
        nsqd = cluster.nsqd()
        nsqd.create("t", "c")
        nsqd.post("/pub?topic=t", b"x")
    wait_until(
        lambda: len(lookupd.get("/nodes")["producers"]) == 2 and lookupd.get("/topics")["topics"] == ["t"],
        "both have registered",
    )
    wait_until(
        lambda: len(lookupd.get("/lookup?topic=t")["producers"]) == 2, "both have registered the topic"
    )

    ended = run_tool(
        "nsq_stat",
        "-topic=t",
        "-channel=c",
        "-interval=50ms",
        "-count=1",
        f"-lookupd-http-address={lookupd.http_address}",
    )

    assert LINE.findall(ended.stdout)[0][0] == b"2"


def test_missing_channel_ends_it_with_sentence(nsqd):
    ended = run_tool("nsq_stat", *flags(nsqd, "-channel=nope"))

    assert ended.returncode == 1
    assert b"ERROR: failed to find channel(nope) in stats metadata for topic(t)\n" in ended.stderr


def test_unreachable_nsqds_at_start_end_it_with_sentence(nsqd):
    nsqd.stop()

    ended = run_tool("nsq_stat", *flags(nsqd))

    assert ended.returncode == 1
    assert b"ERROR: failed to get nsqd stats - " in ended.stderr


def test_nsqd_that_is_down_is_reported_and_other_one_shown(cluster, nsqd):
    nsqd.post("/pub?topic=t", b"x")
    gone = cluster.nsqd()
    gone.kill()

    ended = run_tool("nsq_stat", *flags(nsqd, "-count=1", f"-nsqd-http-address={gone.http_address}"))

    assert ended.returncode == 0
    assert LINE.findall(ended.stdout)[0][0] == b"1"
    assert f'WARNING: missing from these statistics: Get "http://{gone.http_address}'.encode() in ended.stderr


@pytest.mark.slow
def test_restart_of_nsqd_is_survived(nsqd, tmp_path):
    with Tool(tmp_path, "nsq_stat", *flags(nsqd, "-interval=2s")) as tool:
        wait_until(lambda: LINE.findall(tool.printed()), "the first line is there")
        nsqd.kill()
        tool.until_said("ERROR: failed to get nsqd stats")
        shown = len(LINE.findall(tool.printed()))
        nsqd.start()
        wait_until(lambda: len(LINE.findall(tool.printed())) > shown, "lines continue")

        assert tool.stop() == 0


def test_cluster_that_stays_away_ends_it(nsqd, tmp_path):
    with Tool(tmp_path, "nsq_stat", *flags(nsqd, "-interval=50ms")) as tool:
        wait_until(lambda: LINE.findall(tool.printed()), "the first line is there")
        nsqd.kill()

        assert tool.process.wait(20) == 1
        assert tool.said().count("ERROR: failed to get nsqd stats") == 5


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_signal_ends_it_with_0(nsqd, tmp_path, number):
    with Tool(tmp_path, "nsq_stat", *flags(nsqd)) as tool:
        wait_until(lambda: LINE.findall(tool.printed()), "the first line is there")

        assert tool.stop(number) == 0


def test_quiet_channel_looks_as_in_the_original(nsqd):
    peer = original("nsq_stat")
    if peer is None:
        pytest.skip(f"the original's nsq_stat is neither in ${GO_TOOLS} nor on PATH")
    nsqd.post("/mpub?topic=t", b"a\nb\nc")

    ours, theirs = (run_tool(tool, *flags(nsqd, "-count=3")) for tool in ("nsq_stat", [peer]))

    assert (ours.stdout, ours.returncode) == (theirs.stdout, theirs.returncode)


def test_unread_pipe_does_not_prevent_exit(nsqd):
    assert ends_though_nobody_reads("nsq_stat", *flags(nsqd, "-interval=1ms")) == 0
