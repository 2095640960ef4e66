"""The load's side of the layers: bytes arrive as they were sent, prepared or not."""

import socket
import ssl
import threading
import zlib

import pytest

from bench.layered import Layered, tls_flags
from nsqclient.wire.compression import Deflate, Snappy

BATCH = b"MPUB with some text, " * 5000


@pytest.fixture
def pair():
    near, far = socket.socketpair()
    yield near, far
    near.close()
    far.close()


def received(far, codec, length):
    data = b""
    while len(data) < length:
        codec.feed(far.recv(1 << 16))
        while piece := codec.read():
            data += piece
    return data


@pytest.mark.parametrize(("layer", "codec"), [("snappy", Snappy), ("deflate", lambda: Deflate(6))])
def test_prepared_batches_can_be_sent_again_and_between_others(pair, layer, codec):
    near, far = pair
    conn = Layered(near, layer)
    prepared = conn.prepare(BATCH)

    for _ in range(2):
        conn.sendall(b"FIN 1\n")
        conn.send_prepared(prepared)

    assert received(far, codec(), 2 * (len(BATCH) + 6)) == (b"FIN 1\n" + BATCH) * 2


def test_exactly_what_was_asked_for_is_received(pair):
    near, far = pair
    conn = Layered(near, "deflate")
    packer = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    far.sendall(packer.compress(b"abcdef") + packer.flush(zlib.Z_SYNC_FLUSH))
    view = memoryview(bytearray(10))

    assert conn.recv(4, socket.MSG_WAITALL) == b"abcd"
    assert conn.recv_into(view) == 2
    assert bytes(view[:2]) == b"ef"


def test_under_tls_both_ways(pair):
    near, far = pair
    _, certificate, _, key, *_ = tls_flags()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    heard = []

    def serve():
        with context.wrap_socket(far, server_side=True) as over_tls:
            heard.append(over_tls.recv(100))
            over_tls.sendall(b"answer")
            over_tls.recv(100)

    server = threading.Thread(target=serve)
    server.start()
    conn = Layered(near, "tls")
    conn.send_prepared(conn.prepare(b"question"))

    assert conn.recv(6) == b"answer"
    conn.sendall(b".")
    server.join()
    assert heard == [b"question"]
