"""A simple blocking connection to one nsqd for the load generator, with TLS and AUTH if configured."""

import json
import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nsqclient._config import tls_context
from nsqclient.wire import commands
from nsqclient.wire.errors import ProtocolError
from nsqclient.wire.frames import FRAME_ERROR, FRAME_MESSAGE, HEARTBEAT, FrameError, FrameParser, decode_error
from nsqclient.wire.message import MessageRecord

# An answer that takes longer is no longer worth measuring.
TIMEOUT_SECONDS: Final = 10

READ_BYTES: Final = 256 * 1024

# Errors after which a connection is unusable.
BROKEN: Final = (OSError, ProtocolError, FrameError)


@dataclass(frozen=True)
class Access:
    """TLS context and AUTH secret for connections to nsqd."""

    tls: ssl.SSLContext | None = None
    auth_secret: str | None = None
    allow_cleartext: bool = False
    """Whether the secret may be sent without TLS to an nsqd, which nsqlookupd named."""

    def headers(self, *, encrypted: bool) -> dict[str, str]:
        """The headers of an HTTP request that send the secret, none if it may not be sent."""
        if self.auth_secret is None or not (encrypted or self.allow_cleartext):
            return {}
        return {"Authorization": f"Bearer {self.auth_secret}"}


def read_access(tls: Mapping[str, str], auth_secret_file: str, *, allow_cleartext: bool) -> Access:
    """Return the access by options. Raises ValueError or OSError with what is wrong with a file."""
    secret = Path(auth_secret_file).read_text(encoding="utf-8").strip() if auth_secret_file else None
    return Access(tls_context(tls) if tls else None, secret, allow_cleartext)


class LoadConnection:
    """Speaks V2 after IDENTIFY. A broken connection raises OSError, a refusal by nsqd ProtocolError."""

    def __init__(self, address: str, access: Access) -> None:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        self.address = address
        # How often nsqd refused a FIN, REQ or TOUCH because the message had already timed out.
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
        identity = {"client_id": "nsq-load", "user_agent": "nsq-load", "feature_negotiation": True}
        self.send(commands.MAGIC_V2)
        granted = json.loads(self.request(commands.identify({**identity, "tls_v1": access.tls is not None})))
        if access.tls is not None:
            if not granted.get("tls_v1"):
                raise ConnectionError(f"nsqd at {self.address} has no TLS")
            self._socket = access.tls.wrap_socket(self._socket, server_hostname=host)
            self._answer()
        if granted.get("auth_required"):
            if access.auth_secret is None:
                raise ConnectionError(f"nsqd at {self.address} asks for AUTH; give --auth-secret-file")
            if access.tls is None and not access.allow_cleartext:
                raise ConnectionError(
                    f"nsqd at {self.address} asks for AUTH; give --tls or --auth-allow-cleartext"
                )
            self.request(commands.auth(access.auth_secret))

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def request(self, command: bytes) -> bytes:
        """Send a command and return its response; messages that arrive before it are queued for ``take``."""
        self.send(command)
        return self._answer()

    def _answer(self) -> bytes:
        while not self._responses:
            self._read()
        return self._responses.pop(0)

    def take(self) -> list[MessageRecord]:
        """Return the messages that have arrived; if there are none, block for one read first."""
        if not self._messages:
            self._read()
        messages, self._messages = self._messages, []
        return messages

    def finish(self, ids: Iterable[bytes]) -> None:
        self.send(b"".join([commands.fin(one) for one in ids]))

    def end(self) -> list[MessageRecord]:
        """Unsubscribe and return the messages that arrived until then; the caller must finish them."""
        self.request(commands.CLS)
        messages, self._messages = self._messages, []
        return messages

    def leave(self) -> None:
        """Close after nsqd has read everything sent; a plain close may lose the last bytes."""
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                # nsqd answers this after it has read everything sent before it.
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
            # Bytes that TLS has already decrypted do not make the socket readable.
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
