"""The consumer against real nsqd and nsqlookupd."""

import asyncio
import json

import pytest

from nsqclient._config import Config
from nsqclient._consumer import Consumer
from nsqclient.wire.errors import ProtocolError
from tests.support.client import IMPATIENT, SOON, Bodies, channel, consumer_of, is_empty, publish
from tests.support.processes import Daemon
from tests.support.waiting import eventually


async def test_messages_are_handled_once_and_finished(cluster):
    nsqd = cluster.nsqd()
    handled = Bodies()
    await publish(nsqd, *(b"%d" % n for n in range(1000)))

    async with consumer_of(nsqd, handled, config=Config(max_in_flight=50)):
        await eventually(lambda: is_empty(nsqd), "the channel is empty")

    assert sorted(handled) == sorted(b"%d" % n for n in range(1000))
    assert channel(nsqd)["requeue_count"] == 0


async def test_consumer_reads_from_all_discovered_nsqd(cluster):
    lookupd = cluster.nsqlookupd()
    nsqds = [cluster.nsqd(), cluster.nsqd()]
    for number, nsqd in enumerate(nsqds):
        await publish(nsqd, b"from %d" % number)
        await eventually(
            lambda nsqd=nsqd: nsqd.http_port in producers(lookupd), "nsqd has announced the topic"
        )
    handled = Bodies()

    async with Consumer(
        "t", "c", handled, lookupd_addresses=[lookupd.http_address], config=Config(max_in_flight=10)
    ) as consumer:
        await eventually(lambda: len(handled) == 2, "both messages are here")
        assert sorted(consumer.nsqd_addresses) == sorted(nsqd.tcp_address for nsqd in nsqds)

    assert sorted(handled) == [b"from 0", b"from 1"]


def producers(lookupd: Daemon) -> list[int]:
    status, body = lookupd.request("GET", "/lookup?topic=t")
    return [producer["http_port"] for producer in json.loads(body)["producers"]] if status == 200 else []


async def test_unknown_topic_is_found_once_it_appears(cluster):
    lookupd = cluster.nsqlookupd()
    nsqd = cluster.nsqd()
    handled = Bodies()
    often = Config(lookupd_poll_interval=0.1)

    async with Consumer(
        "t", "c", handled, lookupd_addresses=[lookupd.http_address], config=often
    ) as consumer:
        assert consumer.nsqd_addresses == []
        await publish(nsqd, b"first")
        await eventually(lambda: handled, "the message is here")


async def test_killed_nsqd_is_found_again_after_its_restart(cluster):
    lookupd = cluster.nsqlookupd()
    nsqd = cluster.nsqd()
    await publish(nsqd, b"before")
    await eventually(lambda: producers(lookupd), "nsqd has announced the topic")
    handled = Bodies()

    async with Consumer("t", "c", handled, lookupd_addresses=[lookupd.http_address]) as consumer:
        await eventually(lambda: handled, "the first message is here")
        nsqd.kill()
        await eventually(lambda: not consumer.nsqd_addresses, "the loss was noticed")
        await asyncio.to_thread(nsqd.start)
        await publish(nsqd, b"after")
        await eventually(lambda: b"after" in handled, "the second message is here", seconds=20)


async def test_failing_handler_gets_message_again_and_consumer_backs_off(cluster, caplog):
    nsqd = cluster.nsqd()
    attempts = []

    def fail_twice(delivery):
        if delivery.body == b"x":
            attempts.append(delivery.attempts)
            if len(attempts) < 3:
                raise RuntimeError("not today")

    await publish(nsqd, b"x", *[b"good"] * 50)
    async with consumer_of(nsqd, fail_twice, config=IMPATIENT, retry=SOON):
        await eventually(lambda: len(attempts) == 3 and is_empty(nsqd), "the third attempt worked")
        await eventually(lambda: channel(nsqd)["clients"][0]["ready_count"] == 20, "RDY is full again")

    assert attempts == [1, 2, 3]
    assert channel(nsqd)["requeue_count"] == 2
    assert "backing off for 0.1s (backoff level 1)" in caplog.text
    assert "not today" in caplog.text


async def test_handler_may_answer_for_itself(cluster):
    nsqd = cluster.nsqd()
    seen = []

    async def requeue_first(delivery):
        seen.append(delivery.attempts)
        delivery.touch()
        if delivery.attempts == 1:
            delivery.requeue(0.01)
        else:
            delivery.finish()
            with pytest.raises(RuntimeError, match="was answered before"):
                delivery.finish()

    await publish(nsqd, b"x")
    async with consumer_of(nsqd, requeue_first):
        await eventually(lambda: len(seen) == 2 and is_empty(nsqd), "the second attempt was finished")

    assert channel(nsqd)["requeue_count"] == 1


async def test_answers_may_come_later_in_batch(cluster):
    nsqd = cluster.nsqd()
    held = []
    await publish(nsqd, *(b"%d" % n for n in range(10)))

    async with consumer_of(nsqd, held.append, config=Config(max_in_flight=10), auto_answer=False) as consumer:
        await eventually(lambda: len(held) == 10, "all are held")
        assert consumer.in_flight == 10
        assert consumer.is_starved
        for delivery in held:
            delivery.finish()
        await eventually(lambda: is_empty(nsqd), "all are finished")
        assert not consumer.is_starved


async def test_touched_message_is_not_delivered_again(memory_nsqd):
    memory_nsqd.publish("t", b"x")
    async with consumer_of(memory_nsqd) as consumer:
        message = await consumer.get(10)
        for _ in range(3):
            memory_nsqd.advance(50)
            message.touch()
            await asyncio.sleep(0)
        message.finish()
        await eventually(lambda: memory_nsqd.finished("t", "c") == [b"x"], "it was finished")

    assert memory_nsqd.timed_out("t", "c") == 0


async def test_max_in_flight_is_shared_and_changes_while_running(cluster):
    nsqds = [cluster.nsqd(), cluster.nsqd()]

    def ready_counts() -> list[int]:
        return [channel(nsqd)["clients"][0]["ready_count"] for nsqd in nsqds]

    async with Consumer(
        "t",
        "c",
        Bodies(),
        nsqd_addresses=[nsqd.tcp_address for nsqd in nsqds],
        config=Config(max_in_flight=10),
    ) as consumer:
        await eventually(lambda: ready_counts() == [5, 5], "each has its half")
        consumer.change_max_in_flight(0)
        await eventually(lambda: ready_counts() == [0, 0], "both are paused")
        consumer.change_max_in_flight(3)
        await eventually(lambda: ready_counts() == [1, 1], "both run again")


async def test_refused_subscription_is_error(cluster):
    nsqd = cluster.nsqd("--max-channel-consumers=1")
    async with consumer_of(nsqd, Bodies()):
        second = consumer_of(nsqd, Bodies())

        with pytest.raises(ProtocolError, match="E_SUB_FAILED"):
            await second.start()


async def test_consumer_knows_how_long_it_may_hold_message(cluster):
    patient, hasty = cluster.nsqd("--msg-timeout=40s"), cluster.nsqd("--msg-timeout=5s")
    consumer = consumer_of(patient, hasty, Bodies())

    assert consumer.msg_timeout == float("inf")
    async with consumer:
        assert consumer.msg_timeout == 5
