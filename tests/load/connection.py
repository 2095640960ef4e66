"""A blocking connection to one nsqd, as plain as a load generator wants it."""

import socket
from collections.abc import Iterable
from typing import Final

from nsqclient.wire import commands
from nsqclient.wire.frames import FRAME_ERROR, FRAME_MESSAGE, HEARTBEAT, FrameParser, decode_error
from nsqclient.wire.message import MessageRecord

# Longer than any answer takes that is still useful to measure.
TIMEOUT_SECONDS: Final = 10

READ_BYTES: Final = 256 * 1024


class Connection:
    """Speaks V2 after IDENTIFY. What breaks raises OSError, what nsqd refuses ProtocolError."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self._parser = FrameParser()
        self._responses: list[bytes] = []
        self._messages: list[MessageRecord] = []
        self._socket = socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_SECONDS)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.send(commands.MAGIC_V2)
            self.request(commands.identify({"client_id": "load", "feature_negotiation": False}))
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def request(self, command: bytes) -> bytes:
        """Send a command and return its response; messages that arrive before it are kept for ``take``."""
        self.send(command)
        while not self._responses:
            self._read()
        return self._responses.pop(0)

    def take(self) -> list[MessageRecord]:
        """Read once (it blocks when there is nothing) and return the messages that are here."""
        if not self._messages:
            self._read()
        messages, self._messages = self._messages, []
        return messages

    def finish(self, messages: Iterable[MessageRecord]) -> None:
        self.send(b"".join([commands.fin(message.id) for message in messages]))

    def end(self) -> list[MessageRecord]:
        """Unsubscribe and return the messages that were still on their way; they want to be finished."""
        self.request(commands.CLS)
        messages, self._messages = self._messages, []
        return messages

    def leave(self) -> None:
        """Close after nsqd has read all that was sent; a plain close may take the last bytes with it."""
        try:
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
        for kind, content in self._parser.feed(data):
            if kind == FRAME_MESSAGE:
                self._messages.append(MessageRecord.decode(content))
            elif kind == FRAME_ERROR:
                raise decode_error(content)
            elif content == HEARTBEAT:
                self.send(commands.NOP)
            else:
                self._responses.append(content)
