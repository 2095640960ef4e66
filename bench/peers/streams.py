"""Redis Streams: XADD, a group's XREADGROUP and XACK. Acknowledged entries stay until they are trimmed."""

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from bench.load import Address, LoadError
from bench.peers.speech import Cut, Look, Order, Session, Speech, body_pattern, compiled, opened, reads

GROUP: Final = b"g"
FIELD: Final = b"b"
# Number of entries that a consumer asks for; it acknowledges the last ones before the next request.
AT_ONCE: Final = 1000
# The fields of an entry: one with the name FIELD.
_FIELDS: Final = b"*2\r\n$1\r\nb\r\n"
_ERROR: Final = re.compile(rb"-[A-Z][A-Z]+[^\r]*")
_names = itertools.count()


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


class StreamSession(Session):
    def __init__(self, address: Address, queue: str) -> None:
        super().__init__(opened(address))
        self._queue = queue.encode()

    def one(self, body: bytes) -> bytes:
        return command(b"XADD", self._queue, b"*", FIELD, body)

    def feed(self, data: bytes) -> int:
        # Each answer is the id as a bulk string: a dollar sign, its length, and digits around a hyphen.
        if wrong := _ERROR.search(data):
            raise LoadError(f"expected an id, got {wrong.group()[:200]!r}")
        count = data.count(b"$")
        self.in_order += count
        return count


class Entries:
    """Finds the entries of a group's reads in the bytes of a connection, and their acknowledgements.

    Answers to XACK come between them and are skipped.
    """

    def __init__(self, queue: bytes, size: int | None, consumer: bytes, order: Order | None = None) -> None:
        body = body_pattern(size)
        length = rb"\d+" if size is None else b"%d" % size
        fields = rb"\*2\r\n\$1\r\nb\r\n\$%b\r\n%b\r\n" % (length, body)
        self._entry = compiled(rb"\*2\r\n(\$\d+\r\n\d+-\d+\r\n)%b" % fields)
        self._fields = compiled(fields)
        self._head = re.compile(rb"\*1\r\n\*2\r\n\$\d+\r\n%b\r\n\*(\d+)\r\n" % re.escape(queue))
        self._queue = queue
        self._order = order or list
        self._left = 0
        self.ask = command(
            b"XREADGROUP", b"GROUP", GROUP, consumer,
            b"COUNT", b"%d" % AT_ONCE, b"BLOCK", b"0", b"STREAMS", queue, b">",
        )  # fmt: skip

    def cut(self, data: bytearray, have: int) -> Cut:
        start = 0
        if not self._left:
            found = self._head.search(data, 0, have)
            if found is None:
                if wrong := _ERROR.search(data, 0, have):
                    raise LoadError(f"expected entries, got {wrong.group()[:200]!r}")
                return 0, bytes, b"", 0
            self._left, start = int(found[1]), found.end()
        end = self._whole(data, start, have)
        entries = self._entry.findall(data, start, end)
        self._left -= len(entries)
        if self._left < 0 or len(entries) != data.count(_FIELDS, start, end):
            raise LoadError(f"entries are not as expected: {bytes(data[start : start + 200])!r}")
        # Send the next request only after the whole answer.
        ask = b"" if self._left else self.ask
        ids = [one[0] for one in entries]
        return (
            end,
            lambda: b"".join([one[1] for one in entries]),
            self.acknowledge(self._order(ids)) + ask,
            len(ids),
        )

    def acknowledge(self, ids: list[bytes]) -> bytes:
        """Return one XACK for *ids*, which are bulk strings as the server sent them."""
        if not ids:
            return b""
        head = b"*%d\r\n$4\r\nXACK\r\n$%d\r\n%b\r\n$1\r\ng\r\n" % (
            len(ids) + 3,
            len(self._queue),
            self._queue,
        )
        return head + b"".join(ids)

    def _whole(self, data: bytearray, start: int, have: int) -> int:
        """Return where the last whole entry ends."""
        last = data.rfind(_FIELDS, start, have)
        while last >= 0:
            if found := self._fields.match(data, last, have):
                return found.end()
            last = data.rfind(_FIELDS, start, last)
        return start


class Streams(Speech):
    """*lanes* are connections: Redis syncs after reading 16 KB of each, so several of them share a sync."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes

    def ready(self, address: Address) -> None:
        if self._ask(address, b"PING") != b"PONG":
            raise LoadError("no PONG")

    def create(self, address: Address, queue: str) -> None:
        self._ask(address, b"XGROUP", b"CREATE", queue.encode(), GROUP, b"0", b"MKSTREAM")

    def delete(self, address: Address, queue: str) -> None:
        self._ask(address, b"UNLINK", queue.encode())

    def owed(self, address: Address, queue: str) -> int:
        [group] = self._ask(address, b"XINFO", b"GROUPS", queue.encode())
        found = dict(zip(group[::2], group[1::2], strict=True))
        return int(found[b"pending"]) + int(found[b"lag"])

    def publisher(self, address: Address, queue: str) -> Session:
        return StreamSession(address, queue)

    def consume(
        self,
        address: Address,
        queue: str,
        size: int | None,
        look: Look | None = None,
        *,
        prompt: bool = False,
        order: Order | None = None,
    ) -> Iterator[int]:
        del prompt  # Redis always answers at once
        consumer = b"c%d-%d" % (os.getpid(), next(_names))
        entries = Entries(queue.encode(), size, consumer, order)
        with closing(opened(address)) as conn:
            yield 0
            conn.sendall(entries.ask)
            yield from reads(conn, entries.cut, look)

    @staticmethod
    def _ask(address: Address, *words: bytes) -> Any:
        with closing(opened(address)) as conn, conn.makefile("rb") as answers:
            conn.sendall(command(*words))
            return answer_of(answers)


def answer_of(lines: Any) -> Any:
    """Return one answer of the protocol, of any kind."""
    kind, rest = (line := lines.readline())[:1], line[1:-2]
    if kind == b"+":
        return rest
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == b"-1" else lines.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return None if rest == b"-1" else [answer_of(lines) for _ in range(int(rest))]
    raise LoadError(f"the server says {line[:200]!r}")
