"""One connection against nsqd and against peers that misbehave."""

import asyncio
import time

import pytest

from nsqclient._config import Config
from nsqclient._connection import Connection
from nsqclient._errors import ConnectionLostError
from nsqclient._handshake import connect
from nsqclient._listener import Listener
from nsqclient.wire import commands
from nsqclient.wire.frames import FRAME_ERROR, FRAME_RESPONSE, HEARTBEAT, encode_frame
from tests.support.peers import answer_identify, scripted_peer
from tests.support.waiting import eventually


async def open_connection(address: str, **settings) -> Connection:
    return await connect(address, Config(**settings), Listener(), is_configured=True)


async def test_handshake_learns_what_nsqd_allows(cluster):
    nsqd = cluster.nsqd("--max-rdy-count=77", "--msg-timeout=13s")

    connection = await open_connection(nsqd.tcp_address)

    assert connection.negotiated.max_rdy_count == 77
    assert connection.negotiated.msg_timeout == 13_000
    assert connection.negotiated.version == "1.3.0"
    await connection.close()


async def test_heartbeat_is_answered():
    answers = []

    async def beat(reader, writer):
        await answer_identify(reader, writer)
        writer.write(encode_frame(FRAME_RESPONSE, HEARTBEAT))
        answers.append(await reader.readline())

    async with scripted_peer(beat) as address:
        connection = await open_connection(address)
        await eventually(lambda: answers, "the peer got a line")
        await connection.close()

    assert answers == [b"NOP\n"]


async def test_commands_behind_refused_one_are_reported_as_lost(cluster):
    nsqd = cluster.nsqd()
    connection = await open_connection(nsqd.tcp_address)
    before = connection.request(commands.pub("t", b"before"))
    refused = connection.request(b"PUB bad!name\n\x00\x00\x00\x01x")
    behind = connection.request(commands.pub("t", b"behind"))

    outcomes = await asyncio.gather(before, refused, behind, return_exceptions=True)

    assert outcomes[0] == b"OK"
    assert outcomes[1].code == "E_BAD_TOPIC"
    assert isinstance(outcomes[2], ConnectionLostError)
    assert connection.is_closed
    with pytest.raises(ConnectionLostError, match="after E_BAD_TOPIC"):
        await connection.request(commands.pub("t", b"x"))
    await connection.close()


async def test_late_finish_is_no_reason_to_close():
    async def refuse_a_finish(reader, writer):
        await answer_identify(reader, writer)
        writer.write(encode_frame(FRAME_ERROR, b"E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight"))
        await reader.readline()
        await reader.readexactly(5)
        writer.write(encode_frame(FRAME_RESPONSE, b"OK"))
        await reader.read()

    async with scripted_peer(refuse_a_finish) as address:
        connection = await open_connection(address)

        assert await connection.request(commands.pub("t", b"x")) == b"OK"
        await connection.close()


async def test_closing_does_not_wait_for_peer_that_stopped_reading():
    may_leave = asyncio.Event()

    async def stop_reading(reader, writer):
        await answer_identify(reader, writer)
        await may_leave.wait()

    async with scripted_peer(stop_reading) as address:
        connection = await open_connection(address)
        connection.send(commands.pub("t", bytes(64 * 1024 * 1024)))
        async with asyncio.timeout(20):
            await connection.close()
        may_leave.set()


async def test_pause_of_this_process_is_not_a_silent_nsqd(cluster):
    nsqd = cluster.nsqd()
    opening = asyncio.create_task(open_connection(nsqd.tcp_address, dial_timeout=0.2))
    await asyncio.sleep(0)  # the connection is begun
    woken_at = time.monotonic() + 0.4
    while time.monotonic() < woken_at:
        pass  # this process does nothing, as on a machine that is too busy, while nsqd's side accepts

    connection = await opening

    assert connection.negotiated.version == "1.3.0"
    await connection.close()
