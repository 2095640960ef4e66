"""A server that lies, leaves or falls silent: the error is typed and in time, and the consumer comes back."""

import asyncio
import json
import struct

import pytest

from nsqclient import Config, ConnectionLostError, Consumer, HandshakeError, Producer, WrongPortError
from nsqclient.wire.errors import ProtocolError
from nsqclient.wire.frames import FRAME_ERROR, FRAME_MESSAGE, FRAME_RESPONSE, HEARTBEAT, encode_frame
from nsqclient.wire.message import MessageRecord
from tests.support.peers import answer_identify, read_published, scripted_peer
from tests.support.waiting import eventually

OK = encode_frame(FRAME_RESPONSE, b"OK")
MESSAGE = encode_frame(FRAME_MESSAGE, MessageRecord(1, 1, b"0123456789abcdef", b"hello").encode())

# Time-outs short enough to wait for, and a consumer that soon asks nsqlookupd again.
QUICK = Config(
    read_timeout=0.5, write_timeout=0.2, heartbeat_interval=0.5, lookupd_poll_interval=0.05, max_in_flight=2
)

LIES = {
    "an unknown frame": encode_frame(7, b"what"),
    "a size of nothing": struct.pack(">II", 0, 0),
    "gigabytes": struct.pack(">II", 2**32 - 1, FRAME_MESSAGE),
    "a message without a header": encode_frame(FRAME_MESSAGE, b"short"),
    "half a frame": OK[:-1],
    "another answer": encode_frame(FRAME_RESPONSE, b"CLOSE_WAIT"),
    "two answers to one command": OK * 3,
    "an error in place of OK": encode_frame(FRAME_ERROR, b"E_INVALID because"),
    "text": b"220 smtp.example.org ESMTP\r\n" * 3,
    "nothing at all": b"",
}


@pytest.mark.parametrize("lie", LIES)
async def test_publish_with_false_answer_fails(lie):
    async def answer(reader, writer):
        await answer_identify(reader, writer)
        await read_published(reader)
        writer.write(LIES[lie])

    async with scripted_peer(answer) as address, Producer(address, config=QUICK) as producer:
        with pytest.raises((ConnectionLostError, HandshakeError, ProtocolError)):
            await producer.publish("t", b"x")


@pytest.mark.parametrize("lie", LIES)
async def test_consumer_reconnects_after_invalid_bytes(lie):
    connections = 0
    finished = asyncio.Event()

    async def lie_once(reader, writer):
        nonlocal connections
        connections += 1
        await answer_identify(reader, writer)
        assert (await reader.readline()).startswith(b"SUB ")
        writer.write(OK)
        assert await reader.readline() == b"RDY 2\n"
        if connections == 1:
            writer.write(LIES[lie])
            return
        writer.write(MESSAGE)
        assert await reader.readline() == b"FIN 0123456789abcdef\n"
        finished.set()
        await reader.read()

    async with scripted_peer(lie_once) as address:
        consumer = Consumer("t", "c", lambda _: None, nsqd_addresses=[address], config=QUICK)
        await consumer.start()
        async with asyncio.timeout(20):
            await finished.wait()
        await consumer.close(drain_seconds=0)

    assert connections == 2


async def test_message_before_invalid_bytes_is_received():
    handled = []

    async def send_and_lie(reader, writer):
        await answer_identify(reader, writer)
        await reader.readline()
        writer.write(OK)
        await reader.readline()
        writer.write(MESSAGE + LIES["gigabytes"])
        await reader.read()

    async with scripted_peer(send_and_lie) as address:
        consumer = Consumer("t", "c", handled.append, nsqd_addresses=[address], config=QUICK)
        await consumer.start()
        await eventually(lambda: consumer.stats.received >= 1, "a message came")
        await consumer.close(drain_seconds=0)


async def say_nothing(reader, _):
    await reader.read()


async def fall_silent(reader, writer):
    await answer_identify(reader, writer)
    await reader.read()


async def only_beat(reader, writer):
    await answer_identify(reader, writer)
    while True:
        writer.write(encode_frame(FRAME_RESPONSE, HEARTBEAT))
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("peer", "error", "reason"),
    [
        (say_nothing, HandshakeError, "did not answer the handshake in 0.5 s"),
        (fall_silent, ConnectionLostError, "was silent for"),
        (only_beat, ConnectionLostError, "did not answer a command for"),
    ],
)
async def test_peer_that_does_not_answer_is_left(peer, error, reason):
    async with scripted_peer(peer) as address, Producer(address, config=QUICK) as producer:
        with pytest.raises(error, match=reason):
            await producer.publish("t", b"x")


async def test_peer_that_reads_nothing_is_left_after_write_timeout():
    may_leave = asyncio.Event()

    async def read_nothing(reader, writer):
        await answer_identify(reader, writer)
        await may_leave.wait()

    config = Config(write_timeout=0.2)  # far below the read_timeout
    async with scripted_peer(read_nothing) as address, Producer(address, config=config) as producer:
        with pytest.raises(ConnectionLostError, match=r"took none of \d+ bytes in 0.2 s"):
            await producer.publish("t", bytes(64 * 1024 * 1024))
        may_leave.set()


@pytest.mark.parametrize(
    "answer",
    [
        {"max_rdy_count": "many"},
        {"tls_v1": 1},
        {"version": None},
        ["max_rdy_count"],
    ],
)
async def test_answer_to_identify_of_another_shape_is_refused(answer):
    async def negotiate(reader, writer):
        await reader.readuntil(b"IDENTIFY\n")
        body = json.dumps(answer).encode()
        writer.write(encode_frame(FRAME_RESPONSE, body if body.startswith(b"{") else b"{" + body))
        await reader.read()

    async with scripted_peer(negotiate) as address, Producer(address) as producer:
        with pytest.raises(HandshakeError, match="to IDENTIFY is not understood"):
            await producer.publish("t", b"x")


@pytest.mark.parametrize("start", ["nsqd", "go_nsqd"])
async def test_http_port_of_nsqd_is_recognised(cluster, start):
    nsqd = getattr(cluster, start)()

    async with Producer(nsqd.http_address) as producer:
        with pytest.raises(WrongPortError, match="answers in HTTP: this is an HTTP port"):
            await producer.publish("t", b"x")


async def test_tcp_port_of_nsqlookupd_is_recognised(cluster):
    lookupd = cluster.nsqlookupd()

    async with Producer(lookupd.tcp_address) as producer:
        with pytest.raises(WrongPortError, match="seems to be the TCP port of nsqlookupd"):
            await producer.publish("t", b"x")


@pytest.mark.parametrize("daemon", ["nsqd", "nsqlookupd"])
async def test_tcp_port_in_place_of_nsqlookupds_http_port_is_said_in_log(cluster, daemon, caplog):
    address = getattr(cluster, daemon)().tcp_address

    async with Consumer("t", "c", lambda _: None, lookupd_addresses=[address]):
        await eventually(lambda: "no answer in HTTP; is it a TCP port?" in caplog.text, "the log says so")


@pytest.mark.parametrize(
    ("host", "reason"),
    [("nsqd-0.nsqd..svc", "an empty part"), (f"nsqd-{'0' * 60}", "longer than 63 characters")],
)
def test_address_with_impossible_host_name_is_refused(host, reason):
    with pytest.raises(ValueError, match=reason):
        Producer([f"{host}:4150"])
