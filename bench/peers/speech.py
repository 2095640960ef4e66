"""The operations that rows use in any protocol: publish, count answers, consume, ask what is owed."""

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

# The first bytes of a body are its due moment or its number.
HEAD: Final = 8
# A server that is silent for this long has failed.
SILENT_S: Final = 30
# Called with the first HEAD bytes of all bodies of a read, one after the other.
Look = Callable[[bytes], None]


class Session(ABC):
    """A publisher's connection to one queue. Commands that it encodes are valid only on this connection."""

    # Number of batches under way with which the server is fastest.
    window = 8

    def __init__(self, conn: socket.socket) -> None:
        self.conn = conn
        # The first so many commands are confirmed, without a gap.
        self.in_order = 0

    @abstractmethod
    def one(self, body: bytes) -> bytes:
        """Return the command that publishes *body* and is answered once."""

    def batch(self, bodies: list[bytes]) -> bytes:
        """Return the fastest command or commands that publish several bodies."""
        return b"".join(map(self.one, bodies))

    def answers_to(self, count: int) -> int:
        """Return how many answers a batch of *count* messages gets."""
        return count

    @abstractmethod
    def feed(self, data: bytes) -> int:
        """Return how many more answers *data* completes. Raises LoadError for a refusal."""

    def read(self) -> int:
        data = self.conn.recv(1 << 16)
        if not data:
            raise LoadError("the server closed a publisher's connection")
        return self.feed(data)


class Speech(ABC):
    """A protocol: how a queue is created, filled, emptied and counted."""

    # The longest batch, in messages.
    batch = 200
    # Number of connections of a process that publishes batches.
    lanes = 1

    @abstractmethod
    def ready(self, address: Address) -> None:
        """Return if the server takes work. Raises OSError or LoadError otherwise."""

    @abstractmethod
    def create(self, address: Address, queue: str) -> None: ...

    @abstractmethod
    def delete(self, address: Address, queue: str) -> None: ...

    @abstractmethod
    def owed(self, address: Address, queue: str) -> int:
        """Return the number of unacknowledged messages."""

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
        """Yield 0 when the connection is ready; then how many messages each read acknowledged, 0 if none
        came for a while. *size* None means mixed sizes. *prompt*: latency matters, not the rate.
        The messages of a read are acknowledged one by one in *order*, or in the broker's fastest way.
        """


# Takes acknowledgements in order of arrival, returns them in another order.
Order = Callable[[list[Any]], list[Any]]


def shuffled(items: list[Any]) -> list[Any]:
    """Return the items in a random order that is drawn once for each length, which saves time."""
    return list(_shuffling(len(items))(items)) if len(items) > 1 else items


@cache
def _shuffling(count: int) -> Callable[[list[Any]], tuple[Any, ...]]:
    return itemgetter(*random.Random(count).sample(range(count), count))


def opened(address: Address, silent_s: float = SILENT_S) -> socket.socket:
    """Return a connection whose reads time out; the kernel's own time-out costs nothing."""
    conn = socket.create_connection(address, timeout=20)
    conn.settimeout(None)
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    until(conn, silent_s)
    return conn


def until(conn: socket.socket, seconds: float) -> None:
    whole, fraction = divmod(seconds, 1)
    timeout = struct.pack("ll", int(whole), int(fraction * 1_000_000))
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)


# Of a read: where whole messages end, the first bytes of their bodies, their acknowledgements, their number.
Cut = tuple[int, Callable[[], bytes], bytes, int]


def reads(conn: socket.socket, cut: Callable[[bytearray, int], Cut], look: Look | None) -> Iterator[int]:
    """Acknowledge the messages of each read and yield their number."""
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
    """Return a pattern for a body, with its first bytes as a group; mixed-size bodies are the letter x."""
    if size is None:
        return b"(x{%d})x*" % HEAD
    return b"(.{%d}).{%d}" % (HEAD, size - HEAD)


def compiled(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.DOTALL)
