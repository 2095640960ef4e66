"""RabbitMQ over AMQP 0-9-1: publisher confirms; consumers acknowledge all up to a tag, or one by one."""

import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Final

from bench.load import Address, LoadError
from bench.peers.speech import HEAD, Cut, Look, Order, Session, Speech, opened, reads

PREFETCH: Final = 5000
TAG: Final = b"c"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END: Final = b"\xce"
# Zero would ask for more than the server allows.
CHANNELS: Final = 10
LARGEST: Final = 131_072
_FRAME: Final = struct.Struct(">BHI")
_AROUND: Final = _FRAME.size + len(END)
_ACK: Final = struct.Struct(">QB")
_LENGTH: Final = struct.Struct(">Q")
# A content header with only the delivery mode: class, weight, length, which properties, the mode.
_CONTENT: Final = struct.Struct(">HHQHB")
_PERSISTENT: Final = (0x1000, 2)

Method = tuple[int, int]
START, START_OK, TUNE, TUNE_OK = (10, 10), (10, 11), (10, 30), (10, 31)
OPEN, OPEN_OK = (10, 40), (10, 41)
CHANNEL_OPEN, CHANNEL_OPEN_OK = (20, 10), (20, 11)
DECLARE, DECLARE_OK, DELETE, DELETE_OK = (50, 10), (50, 11), (50, 40), (50, 41)
QOS, QOS_OK, CONSUME, CONSUME_OK = (60, 10), (60, 11), (60, 20), (60, 21)
PUBLISH, DELIVER, ACK = (60, 40), (60, 60), (60, 80)
CONFIRM, CONFIRM_OK = (85, 10), (85, 11)


def short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def long(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + END


def method(channel: int, name: Method, arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", *name) + arguments)


class Talk:
    """A connection with one channel that sends a method and waits for its answer."""

    def __init__(self, address: Address) -> None:
        self.conn = opened(address)
        self.conn.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect(START)
        login = long(b"") + short(b"PLAIN") + long(b"\x00guest\x00guest") + short(b"en_US")
        self.conn.sendall(method(0, START_OK, login))
        self._expect(TUNE)
        self.conn.sendall(method(0, TUNE_OK, struct.pack(">HIH", CHANNELS, LARGEST, 0)))
        self.ask(OPEN, short(b"/") + short(b"") + b"\x00", OPEN_OK, channel=0)
        self.ask(CHANNEL_OPEN, short(b""), CHANNEL_OPEN_OK)

    def ask(self, name: Method, arguments: bytes, answer: Method, channel: int = 1) -> bytes:
        self.conn.sendall(method(channel, name, arguments))
        return self._expect(answer)

    def close(self) -> None:
        self.conn.close()

    def _expect(self, name: Method) -> bytes:
        _, _, size = _FRAME.unpack(self._exactly(_FRAME.size))
        payload = self._exactly(size + len(END))
        if struct.unpack_from(">HH", payload) != name:
            raise LoadError(f"expected method {name}, got {payload[:200]!r}")
        return payload[4:-1]

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            if not (more := self.conn.recv(count - len(found))):
                raise LoadError("RabbitMQ closed the connection")
            found += more
        return found


class AmqpSession(Session):
    def __init__(self, talk: Talk, queue: str) -> None:
        super().__init__(talk.conn)
        talk.ask(CONFIRM, b"\x00", CONFIRM_OK)
        self._publish = method(1, PUBLISH, b"\x00\x00" + short(b"") + short(queue.encode()) + b"\x00")
        self._rest = b""
        self._ahead: set[int] = set()

    def one(self, body: bytes) -> bytes:
        content = _CONTENT.pack(PUBLISH[0], 0, len(body), *_PERSISTENT)
        return self._publish + frame(HEADER, 1, content) + frame(BODY, 1, body)

    def feed(self, data: bytes) -> int:
        data = self._rest + data
        at, before = 0, self.in_order + len(self._ahead)
        while len(data) - at >= _FRAME.size:
            kind, _, size = _FRAME.unpack_from(data, at)
            payload = at + _FRAME.size
            if len(data) < payload + size + len(END):
                break
            if kind == METHOD:
                if struct.unpack_from(">HH", data, payload) != ACK:
                    raise LoadError(f"expected basic.ack, got {data[payload : payload + size]!r}")
                self._confirmed(*_ACK.unpack_from(data, payload + 4))
            at = payload + size + len(END)
        self._rest = data[at:]
        return self.in_order + len(self._ahead) - before

    def _confirmed(self, tag: int, all_before: int) -> None:
        """Note the confirm of *tag*; single confirms may come out of order."""
        if all_before:
            self.in_order = max(self.in_order, tag)
            self._ahead = {one for one in self._ahead if one > self.in_order}
        elif tag > self.in_order:
            self._ahead.add(tag)
        while self.in_order + 1 in self._ahead:
            self.in_order += 1
            self._ahead.remove(self.in_order)


class DeliverFrames:
    """Finds the messages in the bytes from a consumer's connection; each has three frames."""

    def __init__(self, queue: str, size: int | None, order: Order | None = None) -> None:
        self._order = order
        # Method, its arguments up to the tag, the tag, redelivered, an empty exchange, the routing key.
        self._tag = _FRAME.size + 4 + len(short(TAG))
        first = self._tag + _LENGTH.size + 1 + len(short(b"")) + len(short(queue.encode())) + len(END)
        self._length = first + _FRAME.size + 4
        self._body = first + _FRAME.size + _CONTENT.size + len(END) + _FRAME.size
        self._begin = method(1, DELIVER, bytes(first - _AROUND - 4))[: _FRAME.size + 4]
        self._size = size

    def cut(self, data: bytearray, have: int) -> Cut:
        end, last, count = (
            self._walk(data, have) if self._size is None else self._stride(data, have, self._size)
        )
        if not count:
            return 0, bytes, b"", 0
        [tag] = _LENGTH.unpack_from(data, last + self._tag)
        heads = partial(self._heads, data, end) if self._size else bytes
        return end, heads, self._acknowledge(tag, count), count

    def _acknowledge(self, tag: int, count: int) -> bytes:
        """Acknowledge all up to *tag* at once, or the last *count* one by one; tags have no gaps."""
        if self._order is None:
            return method(1, ACK, _LENGTH.pack(tag) + b"\x01")
        tags = self._order(list(range(tag - count + 1, tag + 1)))
        return b"".join([method(1, ACK, _LENGTH.pack(one) + b"\x00") for one in tags])

    def _stride(self, data: bytearray, have: int, size: int) -> tuple[int, int, int]:
        """Return where whole messages of one size end, where the last one starts, and their number."""
        stride = self._body + size + len(END)
        count = have // stride
        end = count * stride
        for at, byte in enumerate(self._begin):
            if data[at:end:stride] != bytes([byte]) * count:
                raise LoadError(f"no message of {size} bytes: {bytes(data[:200])!r}")
        if data[stride - 1 : end : stride] != END * count:
            raise LoadError(f"a message does not end after {size} bytes: {bytes(data[:200])!r}")
        return end, end - stride, count

    def _walk(self, data: bytearray, have: int) -> tuple[int, int, int]:
        at = last = count = 0
        unpack, begin, to_body = _LENGTH.unpack_from, self._begin, self._body
        while have - at >= to_body:
            if not data.startswith(begin, at):
                raise LoadError(f"not a message: {bytes(data[at : at + 200])!r}")
            end = at + to_body + unpack(data, at + self._length)[0] + 1
            if end > have:
                break
            at, last = end, at
            count += 1
        return at, last, count

    def _heads(self, data: bytearray, end: int) -> bytes:
        stride = self._body + (self._size or 0) + len(END)
        packed = bytearray(HEAD * (end // stride))
        for at in range(HEAD):
            packed[at::HEAD] = data[self._body + at : end : stride]
        return bytes(packed)


class Amqp(Speech):
    """*kind* is the type of its queues, classic or quorum; both are durable."""

    lanes = 2

    def __init__(self, kind: str) -> None:
        table = short(b"x-queue-type") + b"S" + long(kind.encode())
        self._arguments = long(table)

    def ready(self, address: Address) -> None:
        with closing(Talk(address)):
            pass

    def create(self, address: Address, queue: str) -> None:
        self._declare(address, queue)

    def delete(self, address: Address, queue: str) -> None:
        with closing(Talk(address)) as talk:
            talk.ask(DELETE, b"\x00\x00" + short(queue.encode()) + b"\x00", DELETE_OK)

    def owed(self, address: Address, queue: str) -> int:
        """Return the waiting messages; unacknowledged ones come back when their consumer leaves."""
        answer = self._declare(address, queue)
        return int(struct.unpack_from(">I", answer, 1 + answer[0])[0])

    def publisher(self, address: Address, queue: str) -> Session:
        return AmqpSession(Talk(address), queue)

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
        del prompt  # RabbitMQ always sends at once
        with closing(Talk(address)) as talk:
            talk.ask(QOS, struct.pack(">IHB", 0, PREFETCH, 0), QOS_OK)
            yield 0
            words = b"\x00\x00" + short(queue.encode()) + short(TAG) + b"\x00" + long(b"")
            talk.ask(CONSUME, words, CONSUME_OK)
            cut: Callable[[bytearray, int], Cut] = DeliverFrames(queue, size, order).cut
            yield from reads(talk.conn, cut, look)

    def _declare(self, address: Address, queue: str) -> bytes:
        """Declare the queue; the answer has its name, its waiting messages and its consumers."""
        with closing(Talk(address)) as talk:
            durable = b"\x02"
            words = b"\x00\x00" + short(queue.encode()) + durable + self._arguments
            return talk.ask(DECLARE, words, DECLARE_OK)
