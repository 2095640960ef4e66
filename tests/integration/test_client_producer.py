"""The producer against real nsqd that come and go."""

import asyncio

import pytest

from nsqclient import ClosedError, Producer
from nsqclient.wire.errors import ProtocolError
from nsqclient.wire.frames import FRAME_ERROR, FRAME_RESPONSE, encode_frame
from tests.support.client import consumer_of, message_count
from tests.support.nsqd_http import set_policy
from tests.support.peers import answer_identify, read_published, scripted_peer
from tests.support.processes import Daemon
from tests.support.waiting import eventually


async def test_second_nsqd_takes_over_when_first_dies(cluster):
    first, second = cluster.nsqd(), cluster.nsqd()
    async with Producer([first.tcp_address, second.tcp_address]) as producer:
        await producer.publish("t", b"1")
        assert producer.nsqd_address == first.tcp_address
        first.kill()

        await asyncio.gather(*(producer.publish("t", b"%d" % n) for n in range(100)))

        assert producer.nsqd_address == second.tcp_address
    assert message_count(second) == 100


async def test_publish_with_retry_seconds_survives_outage(cluster):
    nsqd = cluster.nsqd()
    async with Producer(nsqd.tcp_address, retry_seconds=30) as producer:
        nsqd.kill()
        publish = asyncio.create_task(producer.publish("t", b"patient"))
        await asyncio.to_thread(nsqd.start)

        await publish

    assert message_count(nsqd) == 1


async def test_node_that_cannot_write_is_left_for_another(cluster):
    async def refuse(reader, writer):
        await answer_identify(reader, writer)
        await read_published(reader)
        writer.write(encode_frame(FRAME_ERROR, b"E_PUB_FAILED PUB failed no space left on device"))

    nsqd = cluster.nsqd()
    async with scripted_peer(refuse) as full, Producer([full, nsqd.tcp_address]) as producer:
        await producer.publish("t", b"x")

    assert message_count(nsqd) == 1


def full_topic(nsqd: Daemon, topic: str) -> None:
    """Let the topic take one message, and publish that one."""
    set_policy(nsqd, f"^{topic}$", name=topic, max_depth=1)
    assert nsqd.request("POST", f"/pub?topic={topic}", b"first")[0] == 200


async def test_topic_that_is_full_fails_no_publish_to_other_topics(cluster):
    nsqd = cluster.nsqd()
    full_topic(nsqd, "a")
    async with Producer(nsqd.tcp_address) as producer:
        refused = await producer.submit("a", b"x")
        others = [await producer.submit_many("b", [b"x"]) for _ in range(10)]
        await asyncio.gather(*others)
        with pytest.raises(ProtocolError, match="topic is full"):
            await refused

    assert message_count(nsqd, "b") == 10


async def test_full_topic_delays_no_publish_to_other_topics(cluster):
    nsqd = cluster.nsqd()
    full_topic(nsqd, "a")
    async with Producer(nsqd.tcp_address, retry_seconds=60) as producer:
        refused = []
        for _ in range(8):
            refused.append(await producer.submit("a", b"x"))
            await producer.publish("b", b"x")
            await asyncio.sleep(0.1)
        assert not any(waiting.done() for waiting in refused)
        assert nsqd.request("DELETE", "/policies?name=a")[0] == 200
        await asyncio.gather(*refused)

    assert (message_count(nsqd, "a"), message_count(nsqd, "b")) == (9, 8)


async def test_publish_to_full_topic_fails_when_producer_is_closed(cluster):
    nsqd = cluster.nsqd()
    full_topic(nsqd, "a")
    producer = Producer(nsqd.tcp_address, retry_seconds=30)
    waiting = await producer.submit("a", b"x")
    await asyncio.sleep(0.3)
    await producer.close(drain_seconds=0.1)

    with pytest.raises(ClosedError):
        await waiting


async def test_unanswered_publish_is_sent_again_rather_than_lost():
    received = []

    async def die_once_before_ok(reader, writer):
        await answer_identify(reader, writer)
        received.append(await read_published(reader))
        if len(received) > 1:
            writer.write(encode_frame(FRAME_RESPONSE, b"OK"))
            await reader.read()

    async with scripted_peer(die_once_before_ok) as address, Producer(address) as producer:
        await producer.publish("t", b"x")

    assert received == [b"x", b"x"]


async def read_line_and_body(reader) -> tuple[bytes, bytes]:
    while (line := await reader.readline()) == b"NOP\n":
        pass
    return line, await reader.readexactly(int.from_bytes(await reader.readexactly(4)))


async def test_messages_of_one_moment_travel_together_and_are_confirmed_each():
    lines = []

    async def note(reader, writer):
        await answer_identify(reader, writer)
        while True:
            line, _ = await read_line_and_body(reader)
            lines.append(line)
            writer.write(encode_frame(FRAME_RESPONSE, b"OK"))

    async with scripted_peer(note) as address, Producer(address) as producer:
        await producer.ping()
        confirmations = [await producer.submit("t", b"%d" % n) for n in range(100)]
        confirmations.append(await producer.submit("u", b"x"))
        await producer.flush()

    # The first message is sent directly: none is under way; the others wait for the end of the moment.
    assert lines == [b"PUB t\n", b"MPUB t\n", b"PUB u\n"]
    assert all(confirmation.result() == b"OK" for confirmation in confirmations)


async def test_submitting_waits_while_too_much_is_unconfirmed():
    may_answer = asyncio.Event()

    async def answer_late(reader, writer):
        await answer_identify(reader, writer)
        await may_answer.wait()
        for _ in range(5):
            await read_line_and_body(reader)
            writer.write(encode_frame(FRAME_RESPONSE, b"OK"))
        await reader.read()

    async with scripted_peer(answer_late) as address, Producer(address, max_unconfirmed=5) as producer:
        await producer.ping()
        for n in range(5):
            await producer.submit("abcde"[n], b"x")
        sixth = asyncio.create_task(producer.submit("f", b"x"))
        done, _ = await asyncio.wait([sixth], timeout=0.05)
        assert not done
        assert producer.unconfirmed == 5

        may_answer.set()

        await sixth
        await producer.close(drain_seconds=0)


async def test_urgent_close_fails_unconfirmed_publishes(memory_nsqd):
    producer = Producer(memory_nsqd.address)
    await producer.ping()
    memory_nsqd.freeze()
    confirmations = [await producer.submit("t", b"x") for _ in range(3)]
    await producer.close(drain_seconds=0)
    memory_nsqd.thaw()

    for confirmation in confirmations:
        with pytest.raises(ClosedError):
            confirmation.result()


async def test_cancelled_publish_disturbs_no_other_publish(cluster):
    nsqd = cluster.nsqd()
    async with Producer(nsqd.tcp_address) as producer:
        impatient = asyncio.create_task(producer.publish("t", b"1"))
        await asyncio.sleep(0)
        impatient.cancel()

        await producer.publish("t", b"2")
        await asyncio.gather(impatient, return_exceptions=True)

    assert producer.unconfirmed == 0


async def test_body_that_changes_later_is_sent_as_it_was(cluster):
    nsqd = cluster.nsqd()
    body = bytearray(b"before")
    async with Producer(nsqd.tcp_address) as producer:
        confirmation = await producer.submit("t", body)
        body[:] = b"after!"
        await confirmation
    bodies = []
    async with consumer_of(nsqd, lambda d: bodies.append(d.body)):
        await eventually(lambda: bodies, "it is here")

    assert bodies == [b"before"]
