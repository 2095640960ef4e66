"""A client on a blocking socket that sends what a test tells it and reads frames from nsqd."""

import json
import select
import socket
import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from nsqclient.wire.commands import MAGIC_V2
from nsqclient.wire.message import MessageRecord

RESPONSE: Final = 0
ERROR: Final = 1
MESSAGE: Final = 2

NO_ID: Final = b"0000000000000000"  # well-formed, and never in flight
NOT_IN_FLIGHT: Final = b"E_FIN_FAILED FIN 0000000000000000 failed ID not in flight"

TIMEOUT_S: Final = 10.0


class Frame(NamedTuple):
    """A frame from nsqd: the kind as a number, and the data after it."""

    kind: int
    data: bytes


def sized(body: bytes) -> bytes:
    """Return a body with its length in front."""
    return struct.pack(">i", len(body)) + body


def size(number: int) -> bytes:
    """Return a length field, which need not be true."""
    return struct.pack(">i", number)


def pub(topic: str, body: bytes) -> bytes:
    return b"PUB %b\n" % topic.encode() + sized(body)


def dpub(topic: str, delay_ms: int, body: bytes) -> bytes:
    return b"DPUB %b %d\n" % (topic.encode(), delay_ms) + sized(body)


def mpub(topic: str, *bodies: bytes) -> bytes:
    return b"MPUB %b\n" % topic.encode() + sized(batch(*bodies))


def batch(*bodies: bytes) -> bytes:
    """Return the body of MPUB: a count, then each message with its size."""
    return size(len(bodies)) + b"".join(sized(body) for body in bodies)


def sub(topic: str, channel: str) -> bytes:
    return f"SUB {topic} {channel}\n".encode()


def rdy(count: int) -> bytes:
    return b"RDY %d\n" % count


def fin(message: MessageRecord) -> bytes:
    return b"FIN %b\n" % message.id


def req(message: MessageRecord, delay_ms: int) -> bytes:
    return b"REQ %b %d\n" % (message.id, delay_ms)


def touch(message: MessageRecord) -> bytes:
    return b"TOUCH %b\n" % message.id


def identify(**settings: Any) -> bytes:
    """Return IDENTIFY with exactly these settings."""
    return b"IDENTIFY\n" + sized(json.dumps(settings).encode())


class Wire:
    """One connection to nsqd. Every read must get its bytes within :data:`TIMEOUT_S`."""

    def __init__(self, address: tuple[str, int] | str, magic: bytes = MAGIC_V2) -> None:
        """If *address* is text, it is the path of a unix socket."""
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.settimeout(TIMEOUT_S)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(address, timeout=TIMEOUT_S)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""
        if magic:
            self.send(magic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        """Our own port, by which nsqd's statistics know us."""
        return int(self.socket.getsockname()[1])

    # --- sending

    def send(self, *data: bytes) -> None:
        self.socket.sendall(b"".join(data))

    def end(self) -> None:
        """Send nothing more; frames of nsqd can still be read."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.socket.close()

    # --- reading

    def frame(self) -> Frame:
        """Return the next frame. Raises EOFError if the connection is closed instead."""
        length = int.from_bytes(self._exactly(4))
        kind = int.from_bytes(self._exactly(4))
        return Frame(kind, self._exactly(length - 4))

    def response(self) -> bytes:
        kind, data = self.frame()
        assert kind == RESPONSE, f"{data!r} is no response"
        return data

    def ok(self, times: int = 1) -> None:
        for _ in range(times):
            answer = self.response()
            assert answer == b"OK", answer

    def error(self) -> bytes:
        kind, data = self.frame()
        assert kind == ERROR, f"{data!r} is no error"
        return data

    def message(self) -> MessageRecord:
        kind, data = self.frame()
        assert kind == MESSAGE, f"{data!r} is no message"
        return MessageRecord.decode(data)

    def messages(self, count: int) -> list[MessageRecord]:
        return [self.message() for _ in range(count)]

    def rest(self) -> bytes:
        """Return the unread bytes up to the end of the connection."""
        pieces = [self._unread]
        self._unread = b""
        while True:
            try:
                piece = self.socket.recv(65536)
            except ConnectionResetError:
                piece = b""  # nsqd closed without reading all of our bytes
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)

    def is_closed(self) -> bool:
        """Say whether nsqd closes without sending anything more."""
        return self.rest() == b""

    def has_more(self, seconds: float = 0) -> bool:
        """Say whether something arrives within this time."""
        if self._unread:
            return True
        # Not select(), because a test process may have more than a thousand files open.
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    # --- conversations

    def ask(self, *data: bytes) -> bytes:
        """Send and return the response."""
        self.send(*data)
        return self.response()

    def ask_frame(self, *data: bytes) -> Frame:
        """Send and return the frame of the answer."""
        self.send(*data)
        return self.frame()

    def refusal(self, *data: bytes) -> bytes:
        """Send bytes that end the connection and return the error that nsqd answers."""
        self.send(*data)
        error = self.error()
        rest = self.rest()
        assert rest == b"", f"more followed the fatal {error!r}: {rest!r}"
        return error

    def identify(self, **settings: Any) -> Mapping[str, Any]:
        """Negotiate; return what nsqd grants."""
        answer: Mapping[str, Any] = json.loads(self.ask(identify(feature_negotiation=True, **settings)))
        return answer

    def publish(self, topic: str, *bodies: bytes) -> None:
        """Publish each body separately, after the one before was acknowledged."""
        for body in bodies:
            answer = self.ask(pub(topic, body))
            assert answer == b"OK", answer

    def subscribe(self, topic: str, channel: str = "ch", ready: int = 0) -> None:
        answer = self.ask(sub(topic, channel))
        assert answer == b"OK", answer
        if ready:
            self.send(rdy(ready))

    def quiet(self) -> None:
        """Assert that nsqd has handled everything this consumer sent and has nothing to send to it.

        It makes two rounds, because in a turn nsqd sends replies before messages.
        """
        for _ in range(2):
            self.send(b"FIN %b\n" % NO_ID)
            kind, data = self.frame()
            assert data == NOT_IN_FLIGHT, f"not quiet: {Frame(kind, data)}"

    def _exactly(self, count: int) -> bytes:
        while len(self._unread) < count:
            piece = self.socket.recv(65536)
            if not piece:
                raise EOFError(f"closed by nsqd with {self._unread!r} unread")
            self._unread += piece
        data, self._unread = self._unread[:count], self._unread[count:]
        return data
