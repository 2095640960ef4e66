"""nsq_to_http against a real nsqd and servers that behave well and badly."""

import asyncio
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import web

from bench.ports import free_port
from tests.support import beside
from tests.support.http_sink import HttpSink, unending
from tests.support.nsqd_http import channel_stats
from tests.support.tools import (
    SOON_BACK,
    Tool,
    command,
    environment,
    publish,
    read_all,
    unfinished,
)
from tests.support.waiting import wait_until

CHANNEL = "nsq_to_http"

# Failed messages are redelivered immediately, without a limit.
IMPATIENT = [
    "-consumer-opt=default_requeue_delay,10ms",
    "-consumer-opt=backoff_multiplier,10ms",
    "-consumer-opt=max_backoff_duration,50ms",
    "-consumer-opt=max_attempts,0",
]


@pytest.fixture
def sink():
    with HttpSink() as sink:
        yield sink


def flags(nsqd, *more: str) -> list[str]:
    return ["-topic=t", f"-nsqd-tcp-address={nsqd.tcp_address}", *more]


def done(nsqd) -> bool:
    return unfinished(nsqd, "t", CHANNEL) == 0


def test_post_has_message_as_its_body(nsqd, sink, tmp_path):
    publish(nsqd, "t", [b"\x00 raw"], CHANNEL)
    with Tool(tmp_path, "nsq_to_http", *flags(nsqd, f"-post={sink.url}/x?y=1", "-header=X-A: b:c")) as tool:
        wait_until(lambda: done(nsqd), "it is sent")
        assert tool.stop() == 0

    [request] = sink.received
    assert (request.method, request.target, request.body) == ("POST", "/x?y=1", b"\x00 raw")
    assert request.headers["User-Agent"] == "nsq_to_http v1.3.0"
    assert request.headers["Content-Type"] == "application/octet-stream"
    assert request.headers["Accept-Encoding"] == "gzip"
    assert request.headers["X-A"] == "b:c"


@pytest.mark.parametrize(("flag", "mode"), [("post", "all"), ("get", "multicast")])
def test_address_is_used_as_it_was_typed(nsqd, sink, tmp_path, flag, mode):
    typed = [
        "/a//b", "//a", "/a/../b", "/./a/", "/%2F", "/%7e~", "/a%20b", "/a+b", "/;p=1,2", "/@:!$&'()*=",
        "/?", "/?a=/b?c", "/?a=%zz", "/?a=%2b+%20", "/?a[]=1&a[]=2", '/?j={"a":1}', "/?a=1;b=2", "/?&&=",
    ]  # fmt: skip
    unfit = {
        "/a b": "/a%20b",
        "/ä": "/%C3%A4",
        "/?a=b c": "/?a=b%20c",
        '/"<>^`{|}': "/%22%3C%3E%5E%60%7B%7C%7D",
    }
    publish(nsqd, "t", [b"x"], CHANNEL)
    addresses = [f"-{flag}={sink.url}{target.replace('%', '%%')}" for target in typed + list(unfit)]
    if flag == "get":
        addresses = [f"{one}&%s" if "?" in one else f"{one}?%s" for one in addresses]
    else:
        addresses = [one.replace("%%", "%") for one in addresses]
    with Tool(tmp_path, "nsq_to_http", *flags(nsqd, f"-mode={mode}", *addresses)):
        wait_until(lambda: done(nsqd), "it is sent")

    wanted = typed + list(unfit.values())
    if flag == "get":
        wanted = [f"{one}&x" if "?" in one else f"{one}?x" for one in wanted]
    assert [one.target for one in sink.received] == [one.removesuffix("?") or one for one in wanted]


def test_given_headers_replace_those_of_tool(nsqd, sink, tmp_path):
    publish(nsqd, "t", [b"x"], CHANNEL)
    given = ["-content-type=text/a", "-header=user-agent: me", "-header=content-type: text/b"]
    with Tool(tmp_path, "nsq_to_http", *flags(nsqd, f"-post={sink.url}", *given)):
        wait_until(lambda: done(nsqd), "it is sent")

    headers = {name.lower(): value for name, value in sink.received[0].headers.items()}
    assert (headers["user-agent"], headers["content-type"]) == ("me", "text/b")


def test_get_has_message_in_its_address(nsqd, sink, tmp_path):
    publish(nsqd, "t", ["msg 1&=ä%".encode()], CHANNEL)
    with Tool(tmp_path, "nsq_to_http", *flags(nsqd, f"-get={sink.url}/g?a=%20&b=%%21&m=%s")):
        wait_until(lambda: done(nsqd), "it is sent")

    assert sink.received[0].target == "/g?a=%20&b=%21&m=msg+1%26%3D%C3%A4%25"


def test_max_in_flight_1_sends_one_message_after_the_other(nsqd, tmp_path):
    bodies = [b"%d" % number for number in range(20)]
    under_way: list[int] = [0]

    async def count(_: int) -> web.StreamResponse:
        under_way.append(under_way[-1] + 1)
        await asyncio.sleep(0.02)  # in which a second request would come
        under_way.append(under_way[-1] - 1)
        return web.Response()

    publish(nsqd, "t", bodies, CHANNEL)
    with HttpSink(count) as sink:
        with Tool(tmp_path, "nsq_to_http", *flags(nsqd, "-max-in-flight=1", f"-post={sink.url}")):
            wait_until(lambda: done(nsqd), "all are sent")
        taken = sink.taken

    assert (max(under_way), taken) == (1, bodies)


def test_status_2xx_accepts_message(nsqd, tmp_path):
    async def created_first(number: int) -> web.StreamResponse:
        return web.Response(status=201 if number == 1 else 200)

    publish(nsqd, "t", [b"x"], CHANNEL)
    with (
        HttpSink(created_first) as sink,
        Tool(tmp_path, "nsq_to_http", *flags(nsqd, f"-post={sink.url}", *IMPATIENT)),
    ):
        wait_until(lambda: done(nsqd), "it is sent")

    assert len(sink.received) == 1


def test_message_is_accepted_though_body_of_answer_does_not_end(nsqd, tmp_path):
    publish(nsqd, "t", [b"x"], CHANNEL)
    with HttpSink(unending) as sink:
        more = ["-http-client-request-timeout=1s", *IMPATIENT]
        with Tool(tmp_path, "nsq_to_http", *flags(nsqd, f"-post={sink.url}", *more)):
            wait_until(lambda: done(nsqd), "it is sent")

    assert len(sink.received) == 1
    assert channel_stats(nsqd, "t", CHANNEL)["requeue_count"] == 0


def test_message_is_taken_whatever_headers_answer_has(nsqd, tmp_path):
    headers = {"X-Long": "x" * 20_000} | {f"X-{n}": "x" for n in range(500)}

    async def talkative(_: int) -> web.StreamResponse:
        return web.Response(headers=headers)

    publish(nsqd, "t", [b"x"], CHANNEL)
    with HttpSink(talkative) as sink, Tool(tmp_path, "nsq_to_http", *flags(nsqd, f"-post={sink.url}")):
        wait_until(lambda: done(nsqd), "it is sent")

    assert len(sink.received) == 1
    assert channel_stats(nsqd, "t", CHANNEL)["requeue_count"] == 0


def test_message_is_touched_while_address_works(cluster, tmp_path):
    async def slow(_: int) -> web.StreamResponse:
        await asyncio.sleep(3)
        return web.Response()

    nsqd = cluster.nsqd("--msg-timeout=1s")
    publish(nsqd, "t", [b"x"], CHANNEL)
    with HttpSink(slow) as sink, Tool(tmp_path, "nsq_to_http", *flags(nsqd, f"-post={sink.url}")):
        wait_until(lambda: done(nsqd), "it is sent")

    assert len(sink.received) == 1
    assert channel_stats(nsqd, "t", CHANNEL)["timeout_count"] == 0


def test_redirects_are_followed(nsqd, tmp_path):
    async def over_there(number: int) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": "/there"}) if number == 1 else web.Response()

    publish(nsqd, "t", [b"x"], CHANNEL)
    with (
        HttpSink(over_there) as sink,
        Tool(tmp_path, "nsq_to_http", *flags(nsqd, f"-post={sink.url}/here")),
    ):
        wait_until(lambda: done(nsqd), "it is sent")

    assert [(one.target, one.body) for one in sink.received] == [("/here", b"x"), ("/there", b"x")]


def test_server_that_fails_now_and_then_gets_every_message(nsqd, tmp_path):
    async def moody(number: int) -> web.StreamResponse | None:
        if number % 7 == 0:
            return None
        if number % 11 == 0:
            await asyncio.sleep(0.6)
        return web.Response(status=500 if number % 5 == 0 else 200)

    bodies = [b"%d" % n for n in range(100)]
    publish(nsqd, "t", bodies, CHANNEL)
    with HttpSink(moody) as sink:
        more = [f"-post={sink.url}", "-http-client-request-timeout=300ms", *IMPATIENT]
        with Tool(tmp_path, "nsq_to_http", *flags(nsqd, *more)) as tool:
            wait_until(lambda: done(nsqd), "all are sent", 60)
            assert tool.stop() == 0

    assert set(sink.taken) == set(bodies)
    assert "backing off" in tool.said()
    if beside.OURS:  # the original says it in other words
        assert "not sent: " in tool.said()
        assert ": got status code 500\n" in tool.said()
        assert ": no answer within 0.3s\n" in tool.said()


def test_lines_that_cannot_be_written_do_not_send_message_twice(nsqd, sink):
    bodies = [b"%d" % n for n in range(250)]
    publish(nsqd, "t", bodies, CHANNEL)
    with (
        Path("/dev/full").open("wb") as full,
        subprocess.Popen(
            [*command("nsq_to_http"), *flags(nsqd, f"-post={sink.url}", "-status-every=100")],
            stderr=full,
            env=environment(),
        ) as process,
    ):
        wait_until(lambda: done(nsqd), "all are sent")
        process.terminate()
        assert process.wait(40) == 0

    assert sorted(sink.taken) == sorted(bodies)
    assert channel_stats(nsqd, "t", CHANNEL)["requeue_count"] == 0


def test_kills_lose_nothing_that_was_finished(nsqd, sink, tmp_path):
    bodies = [b"%06d" % n for n in range(6000)]
    publish(nsqd, "t", bodies, CHANNEL)
    for kill in range(1, 3):
        with Tool(tmp_path, "nsq_to_http", *flags(nsqd, f"-post={sink.url}", *SOON_BACK)) as tool:
            wait_until(
                lambda kill=kill: unfinished(nsqd, "t", CHANNEL) < len(bodies) - kill * 500, "it sends", 30
            )
            tool.kill()
        wait_until(lambda: channel_stats(nsqd, "t", CHANNEL)["client_count"] == 0, "nsqd has noticed")

    left = read_all(nsqd, "t", CHANNEL)
    assert left
    assert set(bodies) - set(left) <= set(sink.taken)


def test_signal_ends_it_with_0_and_nothing_is_sent_twice(nsqd, sink, tmp_path):
    bodies = [b"%06d" % n for n in range(5000)]
    publish(nsqd, "t", bodies, CHANNEL)
    with Tool(tmp_path, "nsq_to_http", *flags(nsqd, f"-post={sink.url}")) as tool:
        wait_until(lambda: len(sink.taken) > 100, "it sends")
        assert tool.stop() == 0

    sent, left = Counter(sink.taken), Counter(read_all(nsqd, "t", CHANNEL))
    assert sent + left - Counter(bodies) == Counter()
    assert Counter(bodies) - sent - left == Counter()


def test_message_is_discarded_after_max_attempts_and_named(nsqd, tmp_path):
    async def broken(_: int) -> web.StreamResponse:
        return web.Response(status=500)

    publish(nsqd, "t", [b"x"], CHANNEL)
    with HttpSink(broken) as sink:
        more = [f"-post={sink.url}", *IMPATIENT[:-1], "-consumer-opt=max_attempts,2"]
        with Tool(tmp_path, "nsq_to_http", *flags(nsqd, *more)) as tool:
            wait_until(lambda: done(nsqd), "it is given up")

    assert len(sink.received) == 2
    named = r"t/nsq_to_http: message [0-9a-f]{16} attempted 3 times, giving up"
    theirs = r"\[t/nsq_to_http\] msg [0-9a-f]{16} attempted 3 times, giving up"
    assert re.search(named if beside.OURS else theirs, tool.said())


@pytest.mark.parametrize("mode", ["round-robin", "hostpool"])
def test_two_addresses_share_messages(nsqd, tmp_path, mode):
    publish(nsqd, "t", [b"%d" % n for n in range(40)], CHANNEL)
    with HttpSink() as one, HttpSink() as two:
        more = [f"-post={one.url}", f"-post={two.url}", f"-mode={mode}", "-n=1", "-status-every=10"]
        with Tool(tmp_path, "nsq_to_http", *flags(nsqd, *more)) as tool:
            wait_until(lambda: done(nsqd), "all are sent")

    assert (len(one.taken), len(two.taken)) == (20, 20)
    line = r"finished 10 - 99th: \d+\.\d\dms - 95th: \d+\.\d\dms - avg: \d+\.\d\dms"
    assert len(re.findall(rf"\[aggregate\]: {line}", tool.said())) == 3
    assert len(re.findall(rf"\[{re.escape(one.url)}\]: {line}", tool.said())) == 1
    assert "WARNING: percentiles of 10 results are coarse" in tool.said()


@pytest.mark.parametrize("mode", ["hostpool", "epsilon-greedy"])
def test_unreachable_address_is_left_out(nsqd, sink, tmp_path, mode):
    bodies = [b"%d" % n for n in range(200)]
    publish(nsqd, "t", bodies, CHANNEL)
    more = [f"-post=http://127.0.0.1:{free_port()}", f"-post={sink.url}", f"-mode={mode}", "-n=5", *IMPATIENT]
    with Tool(tmp_path, "nsq_to_http", *flags(nsqd, *more)) as tool:
        wait_until(lambda: done(nsqd), "all are sent")

    assert Counter(sink.taken) == Counter(bodies)
    assert 1 <= tool.said().count("not sent: ") <= 5


def test_messages_outside_sample_are_finished_unsent(nsqd, sink, tmp_path):
    publish(nsqd, "t", [b"x"] * 100, CHANNEL)
    with Tool(tmp_path, "nsq_to_http", *flags(nsqd, f"-post={sink.url}", "-sample=0")):
        wait_until(lambda: done(nsqd), "all are finished")

    assert sink.received == []
