"""What the rows ask of a broker in any protocol: publish, count the answers, consume, say what is owed."""

import random
import re
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cache
from operator import itemgetter
from typing import Any, Final

from bench.load import IDLE_SECONDS, READ_SIZE, Address, LoadError

# The first bytes of a body say when it was due, or which one it is.
HEAD: Final = 8
# A server that says nothing for so long has failed.
SILENT_S: Final = 30
# It is told the first bytes of every body of a read, one after the other.
Look = Callable[[bytes], None]


class Session(ABC):
    """A publisher's connection to one queue. What it encodes is valid on this connection alone."""

    # How many batches may be under way, where the server answers fastest.
    window = 8

    def __init__(self, conn: socket.socket) -> None:
        self.conn = conn
        # Messages that are confirmed for certain when the first so many answers are.
        self.in_order = 0

    @abstractmethod
    def one(self, body: bytes) -> bytes:
        """The command that publishes *body* and is answered once."""

    def batch(self, bodies: list[bytes]) -> bytes:
        """The fastest way to hand over several."""
        return b"".join(map(self.one, bodies))

    def answers_to(self, count: int) -> int:
        """How many answers a batch of *count* gets."""
        return count

    @abstractmethod
    def feed(self, data: bytes) -> int:
        """How many more answers *data* completes; raises LoadError for any other answer than yes."""

    def read(self) -> int:
        data = self.conn.recv(1 << 16)
        if not data:
            raise LoadError("the server closed a publisher's connection")
        return self.feed(data)


class Speech(ABC):
    """A protocol: how a queue is made, filled, emptied and counted."""

    # The longest batch, in messages.
    batch = 200
    # Connections of a process that publishes batches.
    lanes = 1

    @abstractmethod
    def ready(self, address: Address) -> None:
        """Raise OSError or LoadError while the server does not take work."""

    @abstractmethod
    def create(self, address: Address, queue: str) -> None: ...

    @abstractmethod
    def delete(self, address: Address, queue: str) -> None: ...

    @abstractmethod
    def owed(self, address: Address, queue: str) -> int:
        """Messages that nobody has acknowledged."""

    @abstractmethod
    def publisher(self, address: Address, queue: str) -> Session: ...

    @abstractmethod
    def consume(
        self,
        address: Address,
        queue: str,
        size: int | None,
        look: Look | None = None,
        *,
        prompt: bool = False,
        order: "Order | None" = None,
    ) -> Iterator[int]:
        """First 0, when the connection is ready; then how many messages each read acknowledged, 0 when none
        came for a while. *size* None stands for bodies that differ. *prompt*: latency matters, not the rate.
        The messages of a read are acknowledged one by one in this *order*, or as suits the broker best.
        """


# What is to be acknowledged, in the order in which it came -> in another.
Order = Callable[[list[Any]], list[Any]]


def shuffled(items: list[Any]) -> list[Any]:
    """In an order that is random, but the same for each number of them: to draw it would burden the load."""
    return list(_shuffling(len(items))(items)) if len(items) > 1 else items


@cache
def _shuffling(count: int) -> Callable[[list[Any]], tuple[Any, ...]]:
    return itemgetter(*random.Random(count).sample(range(count), count))


def opened(address: Address, silent_s: float = SILENT_S) -> socket.socket:
    """A connection whose reads end when nothing comes; the kernel's own time-out costs nothing."""
    conn = socket.create_connection(address, timeout=20)
    conn.settimeout(None)
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    until(conn, silent_s)
    return conn


def until(conn: socket.socket, seconds: float) -> None:
    whole, fraction = divmod(seconds, 1)
    timeout = struct.pack("ll", int(whole), int(fraction * 1_000_000))
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)


# Of a read: where whole messages end, the first bytes of their bodies, what acknowledges them, their number.
Cut = tuple[int, Callable[[], bytes], bytes, int]


def reads(conn: socket.socket, cut: Callable[[bytearray, int], Cut], look: Look | None) -> Iterator[int]:
    """Acknowledge what comes, a read at a time."""
    until(conn, IDLE_SECONDS)
    data = bytearray(4 * READ_SIZE)
    view = memoryview(data)
    have = 0
    while True:
        try:
            received = conn.recv_into(view[have:])
        except BlockingIOError:
            yield 0
            continue
        if not received:
            raise LoadError("the server closed a consumer's connection, or sends what is no message")
        have += received
        end, heads, answer, count = cut(data, have)
        if look is not None and count:
            look(heads())
        if answer:
            conn.sendall(answer)
        if end:
            data[: have - end] = data[end:have]
            have -= end
        if count:
            yield count


def body_pattern(size: int | None) -> bytes:
    """A body, its first bytes as a group; bodies of mixed sizes are of the letter x."""
    if size is None:
        return b"(x{%d})x*" % HEAD
    return b"(.{%d}).{%d}" % (HEAD, size - HEAD)


def compiled(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.DOTALL)
