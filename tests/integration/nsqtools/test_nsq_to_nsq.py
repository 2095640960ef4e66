"""nsq_to_nsq between real nsqd."""

import subprocess
from pathlib import Path

import pytest

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

CHANNEL = "nsq_to_nsq"

# Failed messages are redelivered immediately, without a limit.
IMPATIENT = [
    "-consumer-opt=default_requeue_delay,10ms",
    "-consumer-opt=backoff_multiplier,10ms",
    "-consumer-opt=max_backoff_duration,50ms",
    "-consumer-opt=max_attempts,0",
]


@pytest.fixture
def source(nsqd):
    return nsqd


@pytest.fixture
def destination(cluster):
    return with_channel(cluster.nsqd())


def with_channel(nsqd, topic: str = "t"):
    publish(nsqd, topic, [b"first"], "c")
    assert read_all(nsqd, topic, "c") == [b"first"]
    return nsqd


def flags(source, *destinations, more: tuple[str, ...] = ()) -> list[str]:
    return [
        "-topic=t",
        f"-nsqd-tcp-address={source.tcp_address}",
        *(f"-destination-nsqd-tcp-address={one.tcp_address}" for one in destinations),
        *more,
    ]


def done(source, topic: str = "t") -> bool:
    return unfinished(source, topic, CHANNEL) == 0


def numbered(count: int) -> list[bytes]:
    return [b"%06d" % n for n in range(count)]


def test_messages_are_copied_as_they_are(source, destination, tmp_path):
    publish(source, "t", [b"\x00raw", b'{"b": 1, "a": 2}'], CHANNEL)
    with Tool(tmp_path, "nsq_to_nsq", *flags(source, destination)) as tool:
        wait_until(lambda: done(source), "all are copied")
        assert tool.stop() == 0

    assert sorted(read_all(destination, "t", "c")) == [b"\x00raw", b'{"b": 1, "a": 2}']


def test_message_is_dropped_also_when_that_cannot_be_said(source, destination):
    publish(source, "t", [b"notjson", b'{"a": 1}'], CHANNEL)
    more = ("-require-json-field=a",)
    with (
        Path("/dev/full").open("wb") as full,
        subprocess.Popen(
            [*command("nsq_to_nsq"), *flags(source, destination, more=more)], stderr=full, env=environment()
        ) as process,
    ):
        wait_until(lambda: done(source), "all are answered")
        process.terminate()
        assert process.wait(40) == 0

    assert read_all(destination, "t", "c") == [b'{"a": 1}']


def test_several_topics_may_go_into_one(source, cluster, tmp_path):
    destination = with_channel(cluster.nsqd(), "d")
    publish(source, "t", [b"t"], CHANNEL)
    publish(source, "u", [b"u"], CHANNEL)
    more = ("-topic=u", "-destination-topic=d")
    with Tool(tmp_path, "nsq_to_nsq", *flags(source, destination, more=more)):
        wait_until(lambda: done(source) and done(source, "u"), "all are copied")

    assert sorted(read_all(destination, "d", "c")) == [b"t", b"u"]


def test_field_may_be_required_and_others_left_out(source, destination, tmp_path):
    bodies = [
        b'{"kind":"x","n":12345678901234567890,"secret":1}',
        b'{"kind":"y","n":2}',
        b'{"n":3}',
        b"notjson",
        b"[1]",
    ]
    publish(source, "t", bodies, CHANNEL)
    more = (
        "-require-json-field=kind",
        "-require-json-value=x",
        "-whitelist-json-field=n",
        "-whitelist-json-field=kind",
    )
    with Tool(tmp_path, "nsq_to_nsq", *flags(source, destination, more=more)) as tool:
        wait_until(lambda: done(source), "all are looked at")

    assert read_all(destination, "t", "c") == [b'{"kind":"x","n":12345678901234567890}']
    assert "ERROR: Unable to decode json: notjson" in tool.said()
    assert channel_stats(source, "t", CHANNEL)["requeue_count"] == 0


def test_json_that_is_nested_too_deep_is_not_dropped(source, destination, tmp_path):
    publish(source, "t", [b'{"a":' * 50_000 + b"1" + b"}" * 50_000], CHANNEL)
    more = (
        "-require-json-field=a",
        "-consumer-opt=default_requeue_delay,10ms",
        "-consumer-opt=max_attempts,0",
    )
    with Tool(tmp_path, "nsq_to_nsq", *flags(source, destination, more=more)) as tool:
        wait_until(lambda: channel_stats(source, "t", CHANNEL)["requeue_count"] > 1, "it came back")
        assert tool.stop() == 0

    assert "its json is nested too deep" in tool.said()
    assert not done(source)


def test_kills_lose_nothing_that_was_finished(source, destination, tmp_path):
    bodies = numbered(20_000)
    publish(source, "t", bodies, CHANNEL)
    for kill in range(1, 3):
        with Tool(tmp_path, "nsq_to_nsq", *flags(source, destination), *SOON_BACK) as tool:
            wait_until(
                lambda kill=kill: unfinished(source, "t", CHANNEL) < 20_000 - kill * 2000, "it copies", 30
            )
            tool.kill()
        wait_until(lambda: channel_stats(source, "t", CHANNEL)["client_count"] == 0, "nsqd has noticed")

    left = read_all(source, "t", CHANNEL)
    assert left
    assert set(bodies) - set(left) <= set(read_all(destination, "t", "c"))


def test_destination_that_is_killed_and_comes_back_gets_everything(source, destination, tmp_path):
    bodies = numbered(20_000)
    publish(source, "t", bodies, CHANNEL)
    with Tool(tmp_path, "nsq_to_nsq", *flags(source, destination, more=tuple(IMPATIENT))) as tool:
        wait_until(lambda: unfinished(source, "t", CHANNEL) < 18_000, "it copies")
        destination.kill()
        tool.until_said("not published to")
        destination.start()
        wait_until(lambda: done(source), "all are copied", 60)
        assert tool.stop() == 0

    # Messages that it had finished a moment before the kill may come again.
    assert set(bodies) <= set(read_all(destination, "t", "c"))


def test_destination_that_is_up_gets_everything(source, destination, cluster, tmp_path):
    down = cluster.nsqd()
    down.stop()
    bodies = numbered(500)
    publish(source, "t", bodies, CHANNEL)
    with Tool(tmp_path, "nsq_to_nsq", *flags(source, down, destination, more=tuple(IMPATIENT))):
        wait_until(lambda: done(source), "all are copied", 30)

    assert set(read_all(destination, "t", "c")) == set(bodies)


def test_round_robin_shares_messages(source, destination, cluster, tmp_path):
    other = with_channel(cluster.nsqd())
    publish(source, "t", numbered(100), CHANNEL)
    with Tool(tmp_path, "nsq_to_nsq", *flags(source, destination, other, more=("-mode=round-robin",))):
        wait_until(lambda: done(source), "all are copied")

    assert (len(read_all(destination, "t", "c")), len(read_all(other, "t", "c"))) == (50, 50)


def test_signal_ends_it_with_0_and_nothing_is_copied_twice(source, destination, tmp_path):
    bodies = numbered(20_000)
    publish(source, "t", bodies, CHANNEL)
    with Tool(tmp_path, "nsq_to_nsq", *flags(source, destination)) as tool:
        wait_until(lambda: unfinished(source, "t", CHANNEL) < 19_000, "it copies")
        assert tool.stop() == 0

    assert sorted(read_all(destination, "t", "c") + read_all(source, "t", CHANNEL)) == bodies
