import asyncio
import json
import socket

import pytest

from nsqclient.wire.durations import MILLISECOND
from nsqcore.lookup_protocol import PING, encode_identify, encode_register
from tests.support import beside
from tests.support.waiting import eventually

FIELDS = {"broadcast_address": "a", "tcp_port": 4150, "http_port": 4151, "version": "1.3.0"}


LONG = b"t" * 65


def body(text):
    return b"IDENTIFY\n" + len(text).to_bytes(4, "big") + text


async def test_identify_is_answered_with_real_ports(lookupd):
    announcer = await lookupd.connect()

    assert await announcer.identify() == {
        **({"availability": True} if beside.OURS else {}),  # ours accepts AVAILABLE and UNAVAILABLE
        "broadcast_address": "lookup.test",
        "hostname": socket.gethostname(),
        "http_port": lookupd.http_port,
        "tcp_port": lookupd.tcp_port,
        "version": "1.3.0",
    }


async def test_pipelined_commands_are_answered_in_order(lookupd):
    announcer = await lookupd.connect()
    announcer.send(PING + encode_identify(FIELDS) + b"REGISTER t c\r\n" + b"UNREGISTER t c\n" + PING)
    replies = [await announcer.reply() for _ in range(5)]

    assert [reply if reply == b"OK" else json.loads(reply)["version"] for reply in replies] == [
        b"OK",
        "1.3.0",
        b"OK",
        b"OK",
        b"OK",
    ]


async def test_session_that_arrives_byte_by_byte_works_alike(lookupd):
    announcer = await lookupd.connect(magic=b"")
    for byte in b"  V1" + encode_identify(FIELDS) + encode_register("t"):
        announcer.send(bytes([byte]))
        await announcer.writer.drain()
        await asyncio.sleep(0)

    assert json.loads(await announcer.reply())["version"] == "1.3.0"
    assert await announcer.reply() == b"OK"
    assert await lookupd.producers("t") == ["a"]


@pytest.mark.parametrize(
    ("command", "payload"),
    [
        (b"FOO\n", b"E_INVALID invalid command FOO"),
        (b"\n", b"E_INVALID invalid command "),
        (b"REGISTER t\n", b"E_INVALID client must IDENTIFY"),
        (b"REGISTER bad$\n", b"E_INVALID client must IDENTIFY"),
        (b"UNREGISTER t\n", b"E_INVALID client must IDENTIFY"),
        (b"IDENTIFY\n\xff\xff\xff\xfb", b"E_BAD_BODY IDENTIFY failed to read body size"),
        (b"IDENTIFY\n\x7f\xff\xff\xff", b"E_BAD_BODY IDENTIFY body too big 2147483647 > 1048576"),
        (body(b""), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (body(b"[]"), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (body(b"{} x"), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (body(b'{"tcp_port":"4150"}'), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (body(b"\xff\xfe"), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (body(b"null"), b"E_BAD_BODY IDENTIFY missing fields"),
        (body(b"{}"), b"E_BAD_BODY IDENTIFY missing fields"),
        (b"\xff\xfe\xfd\n", b"E_INVALID invalid command \xff\xfe\xfd"),
        (b"x" * 70_000, b"E_INVALID line is longer than 65536 bytes"),
    ],
)
async def test_error_is_answered_and_connection_closed(lookupd, command, payload):
    announcer = await lookupd.connect()

    assert await announcer.ask(command) == payload
    assert await announcer.rest() == b""
    assert (await lookupd.http("GET", "/ping"))[0] == 200


@pytest.mark.parametrize(
    ("command", "payload"),
    [
        (encode_identify(FIELDS), b"E_INVALID cannot IDENTIFY again"),
        (b"REGISTER\n", b"E_INVALID REGISTER insufficient number of params"),
        (b"UNREGISTER\n", b"E_INVALID UNREGISTER insufficient number of params"),
        (b"REGISTER bad$t\n", b"E_BAD_TOPIC REGISTER topic name 'bad$t' is not valid"),
        (b"UNREGISTER bad$t\n", b"E_BAD_TOPIC UNREGISTER topic name 'bad$t' is not valid"),
        (b"REGISTER  t\n", b"E_BAD_TOPIC REGISTER topic name '' is not valid"),
        (b"REGISTER %b\n" % LONG, b"E_BAD_TOPIC REGISTER topic name '%b' is not valid" % LONG),
        (b"REGISTER t bad$c\n", b"E_BAD_CHANNEL REGISTER channel name 'bad$c' is not valid"),
        (b"UNREGISTER t bad$c\n", b"E_BAD_CHANNEL UNREGISTER channel name 'bad$c' is not valid"),
    ],
)
async def test_error_of_known_nsqd_ends_its_registrations(lookupd, command, payload):
    announcer = await lookupd.nsqd()
    assert await announcer.ask(b"REGISTER t\n") == b"OK"

    assert await announcer.ask(command) == payload
    assert await announcer.rest() == b""
    assert await lookupd.get("/nodes") == {"producers": []}


@pytest.mark.parametrize("magic", [b"  V2", b"GET / HTTP/1.1\r\n\r\n"])
async def test_another_protocol_is_refused(lookupd, magic):
    announcer = await lookupd.connect(magic)

    assert await announcer.reply() == b"E_BAD_PROTOCOL"


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),
        (b"PING", b""),
        (b"IDENTIFY\n\x00\x00", b"E_BAD_BODY IDENTIFY failed to read body size"),
        (b"IDENTIFY\n\x00\x00\x00\x09{}", b"E_BAD_BODY IDENTIFY failed to read body"),
    ],
)
async def test_stream_that_ends_early_is_closed(lookupd, sent, answer):
    announcer = await lookupd.connect()
    announcer.send(sent)
    announcer.writer.write_eof()

    assert (await announcer.rest())[4:] == answer


async def test_disconnect_takes_all_registrations_back(lookupd):
    announcer = await lookupd.nsqd()
    await announcer.ask(b"REGISTER t c\n")
    await announcer.ask(b"REGISTER e#ephemeral c#ephemeral\n")
    await announcer.close()

    async def is_gone():
        return await lookupd.get("/nodes") == {"producers": []}

    await eventually(is_gone, "the node is gone")
    if not beside.OURS:  # the original lists the topic until it is deleted
        await lookupd.post("/topic/delete?topic=e%23ephemeral")
    assert await lookupd.get("/topics") == {"topics": ["t"]}
    assert await lookupd.get("/channels?topic=t") == {"channels": ["c"]}
    assert await lookupd.get("/channels?topic=e%23ephemeral") == {"channels": []}


async def test_silent_nsqd_is_hidden_until_its_next_ping(start):
    lookupd = await start(inactive_producer_timeout=100 * MILLISECOND)
    announcer = await lookupd.nsqd()
    await announcer.ask(b"REGISTER t\n")

    async def is_hidden():
        return await lookupd.producers("t") == [] and await lookupd.get("/nodes") == {"producers": []}

    await eventually(is_hidden, "the silent node is hidden")
    await announcer.ask(PING)
    assert await lookupd.producers("t") == ["nsqd-a"]


async def test_reconnect_before_old_connection_is_noticed_shows_nsqd_once(lookupd):
    first, second = await lookupd.nsqd(), await lookupd.nsqd()
    for announcer in (first, second):
        await announcer.ask(b"REGISTER t\n")

    (shown,) = (await lookupd.get("/lookup?topic=t"))["producers"]
    (node,) = (await lookupd.get("/nodes"))["producers"]
    assert shown["remote_address"] == node["remote_address"] == second.address


async def test_peer_that_never_reads_its_replies_is_cut_off(lookupd):
    # With small kernel buffers on both sides the daemon soon has to keep the replies itself.
    lookupd.daemon.tcp.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
    client.connect(("127.0.0.1", lookupd.tcp_port))
    _, writer = await asyncio.open_connection(sock=client)
    writer.transport.pause_reading()
    writer.write(b"  V1")
    with pytest.raises(ConnectionError):
        for _ in range(1000):  # 50 MB
            writer.write(PING * 10_000)
            await writer.drain()
    writer.transport.abort()

    assert "does not read its replies" in lookupd.logged()


async def test_changes_are_logged(lookupd):
    announcer = await lookupd.nsqd()
    await announcer.ask(b"REGISTER t c\n")
    await announcer.ask(PING)

    lines = lookupd.lines()
    peer = announcer.address
    assert f"INFO: DB: client({peer}) REGISTER category:channel key:t subkey:c" in lines
    assert f"INFO: DB: client({peer}) REGISTER category:topic key:t subkey:" in lines
    assert any(line.startswith(f"INFO: CLIENT({peer}): pinged (last ping ") for line in lines)


# -- bounded work, silence ------------------------------------------------------------------------


def registrations(count):
    return b"".join(
        b"REGISTER topic%d channel%d\n" % (n, channel) for n in range(count) for channel in range(2)
    )


async def test_lookups_are_answered_while_large_nsqd_registers_and_is_forgotten(lookupd):
    registry = lookupd.daemon.registry
    stays, leaves = await lookupd.nsqd("stays"), await lookupd.nsqd("leaves", tcp_port=1)
    await stays.ask(b"REGISTER topic0 channel0\n")

    leaves.send(registrations(1000))
    while not registry.knows("topic100"):  # noqa: ASYNC110 - a state of a few rounds
        await asyncio.sleep(0)
    assert await lookupd.producers("topic0") == ["leaves", "stays"]
    assert not registry.knows("topic999")
    for _ in range(2000):
        assert await leaves.reply() == b"OK"

    await leaves.close()
    while registry.counts()["peers"] > 1:  # noqa: ASYNC110 - a state of a few rounds
        await asyncio.sleep(0)
    assert await lookupd.producers("topic0") == ["stays"]
    # Lookups no longer name the node, but most of its registrations are not removed yet.
    assert len(registry._channels_of) == 2
    while len(registry._channels_of) > 1:  # noqa: ASYNC110 - a state of a few rounds
        await asyncio.sleep(0)
    assert lookupd.logged().count(" UNREGISTER category:channel ") == 2000


async def test_commands_before_eof_are_answered(lookupd):
    announcer = await lookupd.nsqd()
    announcer.send(registrations(300))
    announcer.writer.write_eof()

    assert await announcer.rest() == b"\0\0\0\x02OK" * 600


async def test_connection_that_says_nothing_is_closed(lookupd):
    lookupd.daemon.connections.identify_timeout_s = 0.1
    mute, talker = await lookupd.connect(), await lookupd.connect(magic=b"  ")
    nsqd = await lookupd.nsqd()

    assert await mute.rest() == b""
    assert await talker.rest() == b""
    assert await nsqd.ask(b"PING\n") == b"OK"
    assert [line for line in lookupd.lines() if line.endswith(" - said nothing")]
