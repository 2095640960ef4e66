"""Headers of messages through the tools."""

import json

from nsqclient.testing import MemoryNsqd
from tests.support.http_sink import HttpSink
from tests.support.tools import Tool, run_tool, unfinished
from tests.support.waiting import wait_until
from tests.support.youzan import YouzanClient, pub_ext

SOME = {"traceparent": "00-ab", "name": "käse"}


def publish_ext(nsqd, topic, *messages, channel="c"):
    """Publish messages of (headers, body) for a channel."""
    nsqd.create(topic, channel)
    with YouzanClient(("127.0.0.1", nsqd.tcp_port)) as wire:
        for headers, body in messages:
            wire.send(pub_ext(topic, json.dumps(headers).encode() if headers else b"", body))
        wire.ok(len(messages))


def read_ext(nsqd, topic, count, channel="c"):
    with YouzanClient(("127.0.0.1", nsqd.tcp_port)) as wire:
        wire.subscribe(topic, channel, ready=count)
        found = [wire.extended() for _ in range(count)]
        wire.send(*[b"FIN %b\n" % message.id for message in found])
        wire.quiet()
    return [(json.loads(message.headers or b"{}"), message.body) for message in found]


def test_tail_prints_headers_when_asked_for(nsqd):
    publish_ext(nsqd, "t", (SOME, b"1"), ({}, b"2"))
    flags = ["-topic=t", "-channel=c", "-n=2", f"-nsqd-tcp-address={nsqd.tcp_address}"]

    ended = run_tool("nsq_tail", "-headers", *flags)

    assert ended.stdout.decode() == '{"traceparent": "00-ab", "name": "käse"} | 1\n{} | 2\n'
    publish_ext(nsqd, "t", (SOME, b"1"), ({}, b"2"))
    assert run_tool("nsq_tail", *flags).stdout == b"1\n2\n"


def test_headers_of_to_nsq_are_on_each_message(nsqd):
    publish_ext(nsqd, "t", ({}, b"0"))
    ended = run_tool(
        "to_nsq",
        "-topic=t",
        f"-nsqd-tcp-address={nsqd.tcp_address}",
        "-header=traceparent: 00-ab",
        "-header=Time: 12:00",
        stdin=b"1\n2\n",
    )

    assert ended.returncode == 0
    given = {"traceparent": "00-ab", "Time": "12:00"}
    assert read_ext(nsqd, "t", 3) == [({}, b"0"), (given, b"1"), (given, b"2")]


def test_nsq_to_nsq_passes_headers_on(cluster, nsqd, tmp_path):
    destination = cluster.nsqd()
    publish_ext(destination, "t", ({}, b"first"))
    publish_ext(nsqd, "t", (SOME, b"1"), ({}, b"2"), channel="nsq_to_nsq")
    to = f"-destination-nsqd-tcp-address={destination.tcp_address}"
    flags = [f"-nsqd-tcp-address={nsqd.tcp_address}", to]
    with Tool(tmp_path, "nsq_to_nsq", "-topic=t", *flags) as tool:
        wait_until(lambda: unfinished(nsqd, "t", "nsq_to_nsq") == 0, "all are copied")
        assert tool.stop() == 0

    assert sorted(read_ext(destination, "t", 3), key=lambda one: one[1]) == [
        (SOME, b"1"),
        ({}, b"2"),
        ({}, b"first"),
    ]


def test_nsq_to_nsq_copies_bodies_to_nsqd_without_headers(nsqd, tmp_path):
    publish_ext(nsqd, "t", (SOME, b"1"), (SOME, b"2"), channel="nsq_to_nsq")
    with MemoryNsqd() as destination:
        to = f"-destination-nsqd-tcp-address={destination.address}"
        flags = [f"-nsqd-tcp-address={nsqd.tcp_address}", to]
        with Tool(tmp_path, "nsq_to_nsq", "-topic=t", *flags) as tool:
            wait_until(lambda: unfinished(nsqd, "t", "nsq_to_nsq") == 0, "all are copied")
            assert tool.stop() == 0
            assert tool.said().count("does not take headers: messages go there without them") == 1

        assert sorted(destination.published("t")) == [b"1", b"2"]


def test_nsq_to_http_passes_headers_on_so_that_another_nsqd_has_them(cluster, nsqd, tmp_path):
    other = cluster.nsqd()
    publish_ext(other, "u", ({}, b"first"))
    odd = {"two words": "x", "lines": "a\nb", "ok": "y"}
    publish_ext(nsqd, "t", (SOME, b"1"), ({}, b"2"), (odd, b"3"), channel="nsq_to_http")
    flags = [f"-nsqd-tcp-address={nsqd.tcp_address}", f"-post=http://127.0.0.1:{other.http_port}/pub?topic=u"]
    with Tool(tmp_path, "nsq_to_http", "-topic=t", *flags) as tool:
        wait_until(lambda: unfinished(nsqd, "t", "nsq_to_http") == 0, "all are sent")
        assert tool.stop() == 0

    assert sorted(read_ext(other, "u", 4), key=lambda one: one[1]) == [
        (SOME, b"1"),
        ({}, b"2"),
        ({"ok": "y"}, b"3"),
        ({}, b"first"),
    ]


def test_headers_of_get_are_sent_as_well(nsqd, tmp_path):
    publish_ext(nsqd, "t", ({"a": "b"}, b"1"), channel="nsq_to_http")
    with HttpSink() as sink:
        flags = [f"-nsqd-tcp-address={nsqd.tcp_address}", f"-get={sink.url}/?x=%s"]
        with Tool(tmp_path, "nsq_to_http", "-topic=t", *flags) as tool:
            wait_until(lambda: unfinished(nsqd, "t", "nsq_to_http") == 0, "it is sent")
            assert tool.stop() == 0
        [request] = sink.received

    assert request.headers["X-NSQEXT-a"] == "b"
