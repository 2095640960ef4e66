"""Load generators: the requests of one process to one nsqd, at the lowest cost possible in Python.

On a small machine the load must cost far less than the server that it measures. So everything is encoded
before the clock starts, sockets block, and work is done per read instead of per message if possible.
"""

import itertools
import json
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from nsqclient.wire.commands import MAGIC_V2
from nsqclient.wire.frames import FRAME_MESSAGE, FRAME_RESPONSE, OK, encode_frame
from nsqclient.wire.message import FRAME_OVERHEAD, MESSAGE_ID_BYTES

Address = tuple[str, int]

OK_FRAME: Final = encode_frame(FRAME_RESPONSE, OK)
READY_COUNT: Final = 2500
READ_SIZE: Final = 1 << 20
IDLE_SECONDS: Final = 0.05

ID_OFFSET: Final = FRAME_OVERHEAD - MESSAGE_ID_BYTES
FIN_LENGTH: Final = len(b"FIN ") + MESSAGE_ID_BYTES + len(b"\n")
HEADER = struct.Struct(">II")

# As in many real queues, most messages are small and a few large; 671 bytes on average.
MIXED_SIZES: Final = (32, 64, 64, 120, 120, 200, 200, 350, 500, 900, 1500, 4000)
BATCH_VARIANTS: Final = 16


class LoadError(Exception):
    """The server gave an answer that the load does not expect."""


# --- what is sent ------------------------------------------------------------


def bodies(size: int | None, count: int, seed: int = 1) -> list[bytes]:
    """Return *count* message bodies of *size* bytes, or of mixed sizes if it is None."""
    if size is not None:
        return [b"x" * size] * count
    sizes = random.Random(seed).choices(MIXED_SIZES, k=count)
    return [b"x" * chosen for chosen in sizes]


def encode_mpub(topic: str, messages: list[bytes]) -> bytes:
    body = HEADER.pack(0, len(messages))[4:] + b"".join(len(m).to_bytes(4, "big") + m for m in messages)
    return b"MPUB %b\n%b%b" % (topic.encode(), len(body).to_bytes(4, "big"), body)


def encode_pub(topic: str, message: bytes) -> bytes:
    return b"PUB %b\n%b%b" % (topic.encode(), len(message).to_bytes(4, "big"), message)


def encode_http_pub(topic: str, message: bytes) -> bytes:
    head = f"POST /pub?topic={topic} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(message)}\r\n\r\n"
    return head.encode() + message


def encode_http_mpub(topic: str, messages: list[bytes]) -> bytes:
    body = b"\n".join(messages)
    head = f"POST /mpub?topic={topic} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def variants(size: int | None, per_batch: int, encode: Callable[[list[bytes]], bytes]) -> list[bytes]:
    """Return encoded batches to cycle through: one if all messages are alike, several if sizes are mixed."""
    count = 1 if size is not None else BATCH_VARIANTS
    return [encode(bodies(size, per_batch, seed)) for seed in range(count)]


# --- connections -------------------------------------------------------------


class Conn(Protocol):
    """The methods of a socket that the loads use."""

    def sendall(self, data: bytes, /) -> None: ...
    def recv(self, count: int, flags: int = 0, /) -> bytes: ...


class ConsumerConn(Conn, Protocol):
    """The additional methods that a consumer uses."""

    def recv_into(self, view: memoryview, /) -> int: ...
    def setsockopt(self, level: int, option: int, value: bytes, /) -> None: ...


def connect(address: Address, **wishes: object) -> socket.socket:
    """Return a V2 connection on which only answers and messages arrive; *wishes* go into IDENTIFY."""
    conn = open_socket(address)
    handshake(conn, wishes)
    return conn


def open_socket(address: Address) -> socket.socket:
    conn = socket.create_connection(address, timeout=20)
    conn.settimeout(None)
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return conn


def handshake(conn: Conn, wishes: dict[str, object]) -> bytes:
    """Send IDENTIFY with *wishes* and return the answer.

    The heartbeat interval is the longest that a consumer may ask for; no run lasts until the first heartbeat.
    """
    # Some servers buffer their output; with the usual 250 ms the end of a short run would be mostly waiting.
    usual = {"client_id": "bench", "heartbeat_interval": 60_000, "output_buffer_timeout": 25}
    identify = json.dumps(usual | wishes).encode()
    conn.sendall(b"%bIDENTIFY\n%b%b" % (MAGIC_V2, len(identify).to_bytes(4, "big"), identify))
    size, kind = HEADER.unpack(conn.recv(HEADER.size, socket.MSG_WAITALL))
    answer = conn.recv(size - 4, socket.MSG_WAITALL)
    if kind != 0:
        raise LoadError(f"IDENTIFY was answered with {answer!r}")
    return answer


def expect_ok(conn: Conn) -> None:
    answer = conn.recv(len(OK_FRAME), socket.MSG_WAITALL)
    if answer != OK_FRAME:
        raise LoadError(f"expected OK, got {(answer + conn.recv(1000))!r}")


# --- publishing --------------------------------------------------------------


def publish_synchronously(
    conn: Conn, batches: list[bytes], per_batch: int, quota: int, deadline: float
) -> int:
    """Send a batch and wait for its OK, until the quota is reached or the time is over."""
    sent = 0
    monotonic = time.monotonic
    for batch in itertools.cycle(batches):
        if sent >= quota or monotonic() > deadline:
            return sent
        conn.sendall(batch)
        expect_ok(conn)
        sent += per_batch
    raise AssertionError("cycle never ends")


def publish_pipelined(
    conn: Conn, chunks: list[bytes], per_chunk: int, quota: int, deadline: float, window: int = 4
) -> int:
    """Keep up to *window* chunks of commands under way. Raises LoadError for an answer other than OK."""
    sent, answered = 0, 0
    for chunk in itertools.cycle(chunks):
        if sent >= quota or time.monotonic() > deadline:
            break
        conn.sendall(chunk)
        sent += per_chunk
        if sent - answered >= window * per_chunk:
            expect_oks(conn, per_chunk)
            answered += per_chunk
    expect_oks(conn, sent - answered)
    return sent


def expect_oks(conn: Conn, count: int) -> None:
    # MSG_WAITALL, because some servers send each OK separately, and a read for each would cost too much.
    answer = conn.recv(count * len(OK_FRAME), socket.MSG_WAITALL)
    if answer != OK_FRAME * count:
        raise LoadError(f"expected {count} times OK, got {answer[:200]!r}")


# --- consuming ---------------------------------------------------------------


def cut_uniform(data: bytearray, have: int, size: int) -> tuple[int, bytes | bytearray]:
    """Return where the whole messages in ``data[:have]`` end, all of *size* bytes, and the FINs for them.

    Sixteen strided copies move byte 0 of every id, then byte 1, and so on, without a step per message.
    """
    stride = FRAME_OVERHEAD + size
    count = have // stride
    end = count * stride
    header = HEADER.pack(stride - 4, FRAME_MESSAGE)
    for at in range(len(header)):
        if data[at:end:stride] != header[at : at + 1] * count:
            raise LoadError(f"a frame is not a message of {size} bytes: {bytes(data[:200])!r}")
    fins = bytearray(b"FIN 0123456789abcdef\n" * count)
    for at in range(MESSAGE_ID_BYTES):
        fins[4 + at :: FIN_LENGTH] = data[ID_OFFSET + at : end : stride]
    return end, fins


def cut_mixed(data: bytearray, have: int) -> tuple[int, bytes]:
    """Like :func:`cut_uniform` for bodies of any size; goes from frame to frame."""
    at = 0
    ids = []
    unpack = HEADER.unpack_from
    while have - at >= FRAME_OVERHEAD:
        size, kind = unpack(data, at)
        if kind != FRAME_MESSAGE:
            raise LoadError(f"not a message: {bytes(data[at : at + 200])!r}")
        if at + 4 + size > have:
            break
        ids.append(data[at + ID_OFFSET : at + ID_OFFSET + MESSAGE_ID_BYTES])
        at += 4 + size
    return at, b"FIN " + b"\nFIN ".join(ids) + b"\n" if ids else b""


def subscribe(conn: Conn, topic: str, channel: str) -> None:
    conn.sendall(f"SUB {topic} {channel}\n".encode())
    expect_ok(conn)


def ready_count(size: int | None) -> int:
    """Return the RDY for bodies of *size*, so that at most a few MiB are under way."""
    return READY_COUNT if size is None else max(2, min(READY_COUNT, READ_SIZE * 2 // size))


def consume(
    conn: ConsumerConn,
    size: int | None,
    look: Callable[[bytearray, int], None] | None = None,
) -> Iterator[int]:
    """Finish every message that comes; yield how many came with each read, 0 if none came for a while.

    *look* gets the whole messages of a read before they are finished: a buffer and where they end in it.
    """
    # A receive time-out in the kernel costs nothing, but Python's own adds a poll() to every read.
    seconds, fraction = divmod(IDLE_SECONDS, 1)
    idle = struct.pack("ll", int(seconds), int(fraction * 1_000_000))
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, idle)
    data = bytearray(max(READ_SIZE, 4 * (size or 0)))
    view = memoryview(data)
    have = 0
    conn.sendall(b"RDY %d\n" % ready_count(size))
    while True:
        try:
            received = conn.recv_into(view[have:])
        except BlockingIOError:
            yield 0
            continue
        if not received:
            raise LoadError("the server closed a consumer's connection")
        have += received
        end, fins = cut_mixed(data, have) if size is None else cut_uniform(data, have, size)
        if fins:
            if look is not None:
                look(data, end)
            conn.sendall(fins)
            data[: have - end] = data[end:have]
            have -= end
            yield len(fins) // FIN_LENGTH
