"""NSQ: a batch is an MPUB with one OK; FIN acknowledges one message and has no answer."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from bench import load
from bench.load import FIN_LENGTH, Address, LoadError
from bench.peers.speech import HEAD, SILENT_S, Look, Order, Session, Speech, until
from nsqclient.wire.message import FRAME_OVERHEAD

CHANNEL = "ch"


class NsqSession(Session):
    def __init__(self, address: Address, topic: str) -> None:
        super().__init__(load.connect(address))
        until(self.conn, SILENT_S)
        self._topic = topic
        self._rest = b""

    def one(self, body: bytes) -> bytes:
        return load.encode_pub(self._topic, body)

    def batch(self, bodies: list[bytes]) -> bytes:
        return load.encode_mpub(self._topic, bodies)

    def answers_to(self, count: int) -> int:  # noqa: ARG002  # one OK for the whole MPUB
        return 1

    def feed(self, data: bytes) -> int:
        data = self._rest + data
        count, rest = divmod(len(data), len(load.OK_FRAME))
        if data != load.OK_FRAME * count + load.OK_FRAME[:rest]:
            raise LoadError(f"expected OK, got {data[:200]!r}")
        self._rest = data[len(data) - rest :]
        self.in_order += count
        return count


class Nsq(Speech):
    """NSQ's protocol; the HTTP port is the TCP port plus one."""

    lanes = 2

    def ready(self, address: Address) -> None:
        self._ask(address, "GET", "/ping")

    def create(self, address: Address, queue: str) -> None:
        self._ask(address, "POST", f"/topic/create?topic={queue}")
        self._ask(address, "POST", f"/channel/create?topic={queue}&channel={CHANNEL}")

    def delete(self, address: Address, queue: str) -> None:
        self._ask(address, "POST", f"/topic/delete?topic={queue}")

    def owed(self, address: Address, queue: str) -> int:
        found = json.loads(self._ask(address, "GET", f"/stats?format=json&topic={queue}"))["topics"]
        counts: list[dict[str, Any]] = [found[0], *found[0]["channels"]]
        names = ("depth", "in_flight_count", "deferred_count")
        return sum(one.get(name, 0) for one in counts for name in names)

    def publisher(self, address: Address, queue: str) -> Session:
        return NsqSession(address, queue)

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
        # For latency each message is sent at once; otherwise the original is fastest with its own buffer.
        wishes = {"output_buffer_size": -1} if prompt else {}
        with closing(load.connect(address, **wishes)) as conn:
            load.subscribe(conn, queue, CHANNEL)
            yield 0
            seen = None if look is None else lambda data, end: look(heads(data, end, size))
            reorder = None if order is None else lambda fins: b"".join(order(commands(fins)))
            yield from load.consume(conn, size, seen, reorder)

    @staticmethod
    def _ask(address: Address, method: str, path: str) -> bytes:
        request = urllib.request.Request(f"http://{address[0]}:{address[1] + 1}{path}", method=method)
        with urllib.request.urlopen(request, timeout=SILENT_S) as answer:
            found: bytes = answer.read()
        return found


def commands(fins: bytes) -> list[bytes]:
    return [fins[at : at + FIN_LENGTH] for at in range(0, len(fins), FIN_LENGTH)]


def heads(data: bytearray, end: int, size: int | None) -> bytes:
    """Return the first bytes of the bodies in whole frames of one size."""
    stride = FRAME_OVERHEAD + (size or 0)
    packed = bytearray(HEAD * (end // stride))
    for at in range(HEAD):
        packed[at::HEAD] = data[FRAME_OVERHEAD + at : end : stride]
    return bytes(packed)
