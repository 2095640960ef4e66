"""NATS JetStream: publishes are answered on an inbox, and a pull consumer asks for batches of messages."""

import itertools
import json
import os
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from bench.load import Address, LoadError
from bench.peers.speech import Cut, Look, Order, Session, Speech, body_pattern, compiled, opened, reads

CONSUMER: Final = "c"
AT_ONCE: Final = 1000
# Requests that wait at the server, so that it need not wait for the next one.
ASKED: Final = 2
_CONNECT: Final = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\nPING\r\n'
)
_WRONG: Final = re.compile(rb'-ERR[^\r]*|"error":[^\r]*|NATS/1\.0 [^\r]*')
_SEQUENCE: Final = b'"seq":'
_inboxes = itertools.count()


def connect(address: Address) -> Any:
    conn = opened(address)
    said = b""
    conn.sendall(_CONNECT)
    while b"PONG\r\n" not in said:
        if not (more := conn.recv(1 << 16)):
            raise LoadError(f"NATS says {said[-200:]!r}")
        said += more
    return conn


def inbox() -> bytes:
    return b"_I.%d.%d" % (os.getpid(), next(_inboxes))


class JetSession(Session):
    def __init__(self, address: Address, queue: str) -> None:
        super().__init__(connect(address))
        self._to = b"PUB %b %b" % (queue.encode(), reply := inbox())
        self._rest = b""
        self.conn.sendall(b"SUB %b 1\r\n" % reply)

    def one(self, body: bytes) -> bytes:
        return b"%b %d\r\n%b\r\n" % (self._to, len(body), body)

    def feed(self, data: bytes) -> int:
        data = self._rest + data
        if wrong := _WRONG.search(data):
            raise LoadError(f"expected a sequence number, got {wrong.group()[:200]!r}")
        # Keep the end of the data, because it may be the first part of the next sequence.
        self._rest = data[1 - len(_SEQUENCE) :]
        count = data.count(_SEQUENCE)
        self.in_order += count
        return count


class PulledMessages:
    """Finds a pull consumer's messages in the bytes of a connection, and the acknowledgement of each."""

    def __init__(self, queue: str, size: int | None, order: Order | None = None) -> None:
        self._order = order or list
        length = rb"\d+" if size is None else b"%d" % size
        self._message = compiled(
            rb"MSG [^ \r]+ 1 (\$JS\.ACK\.[^ ]+) %b\r\n%b\r\n" % (length, body_pattern(size))
        )
        reply = inbox()
        question = json.dumps({"batch": AT_ONCE}).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{queue}.{CONSUMER}".encode()
        self.ask = b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(question), question)
        self.begin = b"SUB %b 1\r\n" % reply + self.ask * ASKED
        self._left = AT_ONCE

    def cut(self, data: bytearray, have: int) -> Cut:
        end = self._whole(data, have)
        found = self._message.findall(data, 0, end)
        if not found:
            if wrong := _WRONG.search(data, 0, have):
                raise LoadError(f"expected messages, got {wrong.group()[:200]!r}")
            return 0, bytes, b"", 0
        answer = self.acknowledge(self._order([one[0] for one in found]))
        self._left -= len(found)
        while self._left <= 0:
            self._left += AT_ONCE
            answer += self.ask
        return end, lambda: b"".join([one[1] for one in found]), answer, len(found)

    @staticmethod
    def acknowledge(subjects: list[bytes]) -> bytes:
        return b"PUB " + b" 0\r\n\r\nPUB ".join(subjects) + b" 0\r\n\r\n"

    def _whole(self, data: bytearray, have: int) -> int:
        last = data.rfind(b"MSG ", 0, have)
        while last >= 0:
            if found := self._message.match(data, last, have):
                return found.end()
            last = data.rfind(b"MSG ", 0, last)
        return 0


class JetStream(Speech):
    def ready(self, address: Address) -> None:
        self._ask(address, "INFO")

    def create(self, address: Address, queue: str) -> None:
        # As in a queue, acknowledged messages are removed.
        stream = {
            "name": queue,
            "subjects": [queue],
            "storage": "file",
            "retention": "workqueue",
            "num_replicas": 1,
        }
        self._ask(address, f"STREAM.CREATE.{queue}", stream)
        config = {
            "durable_name": CONSUMER,
            "ack_policy": "explicit",
            "ack_wait": 120_000_000_000,
            "max_ack_pending": 100_000,
        }
        about = {"stream_name": queue, "config": config}
        self._ask(address, f"CONSUMER.DURABLE.CREATE.{queue}.{CONSUMER}", about)

    def delete(self, address: Address, queue: str) -> None:
        self._ask(address, f"STREAM.DELETE.{queue}")

    def owed(self, address: Address, queue: str) -> int:
        found = self._ask(address, f"CONSUMER.INFO.{queue}.{CONSUMER}")
        return int(found["num_pending"]) + int(found["num_ack_pending"])

    def publisher(self, address: Address, queue: str) -> Session:
        return JetSession(address, queue)

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
        del prompt  # NATS always sends at once
        found = PulledMessages(queue, size, order)
        with closing(connect(address)) as conn:
            yield 0
            conn.sendall(found.begin)
            yield from reads(conn, found.cut, look)

    @staticmethod
    def _ask(address: Address, subject: str, question: object = None) -> Any:
        body = b"" if question is None else json.dumps(question).encode()
        with closing(connect(address)) as conn, conn.makefile("rb") as answers:
            reply = inbox()
            conn.sendall(
                b"SUB %b 1\r\nPUB $JS.API.%b %b %d\r\n%b\r\n"
                % (reply, subject.encode(), reply, len(body), body)
            )
            while line := answers.readline():
                words = line.split()
                if words[:2] == [b"MSG", reply]:
                    found = json.loads(answers.read(int(words[-1])))
                    if "error" in found:
                        raise LoadError(f"{subject}: {found['error']}")
                    return found
                if words[:1] in ([b"HMSG"], [b"-ERR"]):
                    break
        raise LoadError(f"{subject}: no answer from JetStream")
