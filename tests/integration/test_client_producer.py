"""The producer against real nsqd that come and go."""

import asyncio

import pytest

from nsqcore.client.producer import Producer
from nsqcore.wire.errors import ProtocolError
from nsqcore.wire.frames import FRAME_ERROR, FRAME_RESPONSE, encode_frame
from tests.support.peers import answer_identify, read_published, scripted_peer
from tests.support.processes import Daemon, free_port


def message_count(nsqd: Daemon, topic: str) -> int:
    topics = nsqd.get(f"/stats?format=json&topic={topic}")["topics"] or []
    return sum(stats["message_count"] for stats in topics)


async def test_publishing_reaches_nsqd_in_all_three_ways(cluster):
    nsqd = cluster.nsqd()
    async with Producer(nsqd.tcp_address) as producer:
        await producer.publish("t", b"one")
        await producer.multi_publish("t", [b"two", b"three"])
        await producer.deferred_publish("t", b"four", delay=0.001)

    assert message_count(nsqd, "t") == 4


async def test_many_publishes_share_one_connection(cluster):
    nsqd = cluster.nsqd()
    async with Producer(nsqd.tcp_address) as producer:
        await asyncio.gather(*(producer.publish("t", b"%d" % n) for n in range(500)))

        producers = nsqd.get("/stats?format=json")["producers"]

    assert message_count(nsqd, "t") == 500
    assert len(producers) == 1


async def test_a_bad_name_is_refused_and_the_others_are_not_disturbed(cluster):
    nsqd = cluster.nsqd()
    async with Producer(nsqd.tcp_address) as producer:
        outcomes = await asyncio.gather(
            producer.publish("t", b"1"),
            producer.publish("bad name", b"2"),
            producer.publish("t", b"3"),
            return_exceptions=True,
        )

    assert [type(outcome) for outcome in outcomes] == [type(None), ValueError, type(None)]
    assert message_count(nsqd, "t") == 2


async def test_a_message_too_big_is_refused_and_the_next_one_goes_through(cluster):
    nsqd = cluster.nsqd("--max-msg-size=10")
    async with Producer(nsqd.tcp_address) as producer:
        with pytest.raises(ProtocolError, match="E_BAD_MESSAGE PUB message too big 11 > 10"):
            await producer.publish("t", b"x" * 11)
        await producer.publish("t", b"x" * 10)

    assert message_count(nsqd, "t") == 1


async def test_publishes_piped_behind_a_refused_one_are_sent_again(cluster):
    nsqd = cluster.nsqd("--max-msg-size=10")
    async with Producer(nsqd.tcp_address) as producer:
        outcomes = await asyncio.gather(
            *(producer.publish("t", b"x" * (11 if n == 3 else 10)) for n in range(10)), return_exceptions=True
        )

    assert [n for n, outcome in enumerate(outcomes) if outcome is not None] == [3]
    assert message_count(nsqd, "t") == 9


async def test_a_restarted_nsqd_gets_the_next_message(cluster):
    nsqd = cluster.nsqd()
    async with Producer(nsqd.tcp_address) as producer:
        await producer.publish("t", b"before")
        nsqd.kill()
        await asyncio.to_thread(nsqd.start)

        await producer.publish("t", b"after")


async def test_another_nsqd_takes_over_when_the_first_dies(cluster):
    first, second = cluster.nsqd(), cluster.nsqd()
    async with Producer(first.tcp_address, second.tcp_address) as producer:
        await producer.publish("t", b"1")
        assert producer.nsqd_address == first.tcp_address
        first.kill()

        await asyncio.gather(*(producer.publish("t", b"%d" % n) for n in range(100)))

        assert producer.nsqd_address == second.tcp_address
    assert message_count(second, "t") == 100


async def test_a_dead_first_address_is_passed_over(cluster):
    nsqd = cluster.nsqd()
    async with Producer(f"127.0.0.1:{free_port()}", nsqd.tcp_address) as producer:
        await producer.publish("t", b"x")

    assert message_count(nsqd, "t") == 1


async def test_with_nobody_there_the_error_says_so():
    async with Producer(f"127.0.0.1:{free_port()}") as producer:
        with pytest.raises(OSError, match="Connect call failed"):
            await producer.publish("t", b"x")


async def test_with_time_to_retry_a_publish_survives_an_outage(cluster):
    nsqd = cluster.nsqd()
    async with Producer(nsqd.tcp_address, retry_seconds=30) as producer:
        nsqd.kill()
        publish = asyncio.create_task(producer.publish("t", b"patient"))
        await asyncio.to_thread(nsqd.start)

        await publish

    assert message_count(nsqd, "t") == 1


async def test_a_node_that_cannot_write_is_left_for_another(cluster):
    async def refuse(reader, writer):
        await answer_identify(reader, writer)
        await read_published(reader)
        writer.write(encode_frame(FRAME_ERROR, b"E_PUB_FAILED PUB failed no space left on device"))

    nsqd = cluster.nsqd()
    async with scripted_peer(refuse) as full, Producer(full, nsqd.tcp_address) as producer:
        await producer.publish("t", b"x")

    assert message_count(nsqd, "t") == 1


async def test_an_unanswered_publish_is_sent_again_rather_than_lost():
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


async def test_a_closed_producer_refuses_to_publish(cluster):
    producer = Producer(cluster.nsqd().tcp_address)
    await producer.close()

    with pytest.raises(ConnectionError, match="the producer is closed"):
        await producer.publish("t", b"x")


@pytest.mark.parametrize("addresses", [(), ("nowhere",), ("host:4150", "host:x")])
def test_addresses_are_checked_at_once(addresses):
    with pytest.raises(ValueError, match=r"at least one|is not host:port"):
        Producer(*addresses)
