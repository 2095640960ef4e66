"""The compressed layer between a connection and its transport."""

import asyncio

import pytest

from nsqclient.net.layers import Compressed
from nsqclient.wire.compression import Deflate, Snappy

MANY = b"x" * 3_000_000


class Below(asyncio.Transport):
    """A transport without a socket."""

    def __init__(self):
        super().__init__()
        self.written = b""
        self.reading = True
        self.closing = False

    def set_protocol(self, protocol):
        self.protocol = protocol

    def write(self, data):
        self.written += data

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def is_closing(self):
        return self.closing

    def abort(self):
        self.closing = True
        self.protocol.connection_lost(None)


class Above(asyncio.Protocol):
    """Keeps the data that it receives."""

    def __init__(self):
        self.heard = []
        self.lost = []
        self.on_data = lambda: None

    def data_received(self, data):
        self.heard.append(data)
        self.on_data()

    def eof_received(self):
        self.heard.append("end")

    def connection_lost(self, exc):
        self.lost.append(exc)


@pytest.fixture(params=[lambda: Deflate(6), Snappy], ids=["deflate", "snappy"])
def peer(request):
    peer = request.param()
    peer.another = request.param
    return peer


@pytest.fixture
async def below():
    return Below()


@pytest.fixture
async def above():
    return Above()


@pytest.fixture
async def layer(below, above, peer):
    return Compressed(below, above, peer.another())


async def until_read(below):
    async with asyncio.timeout(10):
        while not below.reading:  # noqa: ASYNC110 - callbacks of this loop do it
            await asyncio.sleep(0)


async def test_written_bytes_are_compressed(layer, below, peer):
    layer.write(b"a")
    layer.writelines([b"b", b"c"])
    peer.feed(below.written)
    assert b"".join(iter(peer.read, b"")) == b"abc"


async def test_large_data_takes_several_turns_and_pauses_reading(layer, below, above, peer):
    layer.data_received(peer.compress(MANY))
    layer.eof_received()

    assert 0 < len(b"".join(above.heard)) < len(MANY) / 5
    assert not below.reading
    await until_read(below)
    assert above.heard.pop() == "end"
    assert b"".join(above.heard) == MANY


async def test_paused_protocol_gets_no_data_until_resumed(layer, below, above, peer):
    above.on_data = layer.pause_reading
    layer.data_received(peer.compress(b"first") + peer.compress(b"x" * 200_000))
    layer.data_received(peer.compress(b"second"))
    await asyncio.sleep(0)
    assert len(above.heard) == 1
    assert not below.reading
    assert not layer.is_reading()

    above.on_data = lambda: None
    layer.resume_reading()
    await until_read(below)
    assert layer.is_reading()
    assert b"".join(above.heard) == b"first" + b"x" * 200_000 + b"second"


async def test_connection_that_closes_has_nothing_decompressed_any_more(layer, below, above, peer):
    def close():
        below.closing = True

    above.on_data = close
    layer.data_received(peer.compress(MANY))
    assert len(above.heard) == 1


async def test_corrupt_stream_ends_connection_with_its_reason(layer, above):
    layer.data_received(b"\xff" * 100)
    (error,) = above.lost
    assert str(error).startswith(("deflate: ", "snappy: "))


async def test_slow_protocol_gets_small_chunks(below, above, peer):
    work = 0.0

    def take_long():
        nonlocal work
        work += len(above.heard[-1]) * 1e-7

    layer = Compressed(below, above, peer.another(), clock=lambda: work)
    above.on_data = take_long
    layer.data_received(peer.compress(MANY))
    rounds = []
    async with asyncio.timeout(10):
        while not below.reading:
            before = work
            await asyncio.sleep(0)
            rounds.append(work - before)

    assert b"".join(above.heard) == MANY
    # A round takes at most its budget and the one step that began within it.
    assert max(rounds) < 0.0008


async def test_pausing_often_gives_no_larger_share_of_round(layer, below, above, peer):
    layer.data_received(peer.compress(MANY))
    for _ in range(5):
        layer.pause_reading()
        layer.resume_reading()
    before = len(b"".join(above.heard))

    await asyncio.sleep(0)

    assert len(b"".join(above.heard)) - before <= 300_000
