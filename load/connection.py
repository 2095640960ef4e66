"""A blocking connection to one nsqd, as plain as a load generator wants it; with TLS and AUTH where asked."""

import json
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from nsqclient.wire import commands
from nsqclient.wire.errors import ProtocolError
from nsqclient.wire.frames import FRAME_ERROR, FRAME_MESSAGE, HEARTBEAT, FrameError, FrameParser, decode_error
from nsqclient.wire.message import MessageRecord

# Longer than any answer takes that is still useful to measure.
TIMEOUT_SECONDS: Final = 10

READ_BYTES: Final = 256 * 1024

# What ends a connection.
BROKEN: Final = (OSError, ProtocolError, FrameError)


@dataclass(frozen=True)
class Access:
    """How nsqds are spoken to."""

    tls: ssl.SSLContext | None = None
    auth_secret: str | None = None


class LoadConnection:
    """Speaks V2 after IDENTIFY. What breaks raises OSError, what nsqd refuses ProtocolError."""

    def __init__(self, address: str, access: Access) -> None:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        self.address = address
        # Answers to FIN, REQ and TOUCH that came too late: the message had timed out.
        self.late = 0
        self._parser = FrameParser()
        self._responses: list[bytes] = []
        self._messages: list[MessageRecord] = []
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_SECONDS)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._shake_hands(host, access)
        except BaseException:
            self.close()
            raise

    def _shake_hands(self, host: str, access: Access) -> None:
        wishes = {"client_id": "nsq-load", "user_agent": "nsq-load", "feature_negotiation": True}
        self.send(commands.MAGIC_V2)
        granted = json.loads(self.request(commands.identify({**wishes, "tls_v1": access.tls is not None})))
        if access.tls is not None:
            if not granted.get("tls_v1"):
                raise ConnectionError(f"nsqd at {self.address} has no TLS")
            self._socket = access.tls.wrap_socket(self._socket, server_hostname=host)
            self._answer()
        if granted.get("auth_required"):
            if access.auth_secret is None:
                raise ConnectionError(f"nsqd at {self.address} asks for AUTH; give --auth-secret-file")
            self.request(commands.auth(access.auth_secret))

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def request(self, command: bytes) -> bytes:
        """Send a command and return its response; messages that arrive before it are kept for ``take``."""
        self.send(command)
        return self._answer()

    def _answer(self) -> bytes:
        while not self._responses:
            self._read()
        return self._responses.pop(0)

    def take(self) -> list[MessageRecord]:
        """Read once (it blocks when there is nothing) and return the messages that are here."""
        if not self._messages:
            self._read()
        messages, self._messages = self._messages, []
        return messages

    def finish(self, ids: Iterable[bytes]) -> None:
        self.send(b"".join([commands.fin(one) for one in ids]))

    def end(self) -> list[MessageRecord]:
        """Unsubscribe and return the messages that were still on their way; they want to be finished."""
        self.request(commands.CLS)
        messages, self._messages = self._messages, []
        return messages

    def leave(self) -> None:
        """Close after nsqd has read all that was sent; a plain close may take the last bytes with it."""
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                # The answer to this comes behind all that was sent.
                self._socket = self._socket.unwrap()
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(READ_BYTES):
                pass
        finally:
            self.close()

    def close(self) -> None:
        self._socket.close()

    def _read(self) -> None:
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError(f"nsqd at {self.address} closed the connection")
        if isinstance(self._socket, ssl.SSLSocket):
            # What TLS has decrypted already makes no socket readable.
            while waiting := self._socket.pending():
                data += self._socket.recv(waiting)
        for kind, content in self._parser.feed(data):
            if kind == FRAME_MESSAGE:
                self._messages.append(MessageRecord.decode(content))
            elif kind == FRAME_ERROR:
                error = decode_error(content)
                if error.fatal:
                    raise error
                self.late += 1
            elif content == HEARTBEAT:
                self.send(commands.NOP)
            else:
                self._responses.append(content)
