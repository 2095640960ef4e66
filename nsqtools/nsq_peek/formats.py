"""Formats a message of ``/messages`` as a line of text, as JSON, or as its body alone."""

import base64
import json

import msgspec


class Shown(msgspec.Struct, frozen=True):
    """The fields of one message that are read; ``messages`` of :class:`Page` has all of it."""

    id: str
    timestamp: int
    time: str
    encoding: str
    body: msgspec.Raw
    headers: dict[str, str] = {}
    state: str = ""
    until: str = ""

    @property
    def content(self) -> bytes:
        """The body as it was published; JSON without the blanks and line ends outside its strings."""
        if self.encoding == "json":
            return bytes(self.body)
        text = msgspec.json.decode(self.body, type=str)
        return base64.b64decode(text) if self.encoding == "base64" else text.encode()


class Page(msgspec.Struct, frozen=True):
    """One answer of ``/messages``."""

    messages: list[msgspec.Raw]
    next: str | None
    more: bool


def read_page(answer: bytes) -> Page:
    """Raises ValueError when it is none."""
    return msgspec.json.decode(answer, type=Page)


def read_message(raw: msgspec.Raw) -> Shown:
    """Raises ValueError when it is none."""
    return msgspec.json.decode(raw, type=Shown)


def line(output: str, address: str, raw: msgspec.Raw, *, headers: bool) -> bytes:
    """The line for a message of the nsqd at *address*."""
    if output == "json":
        # Everything in nsqd's answer, with numbers and names unchanged.
        return b'{"nsqd":%b,%b\n' % (json.dumps(address).encode(), bytes(raw)[1:])
    message = read_message(raw)
    words = [json.dumps(message.headers, ensure_ascii=False).encode()] if headers else []
    if output == "text":
        state = [message.state.encode()] if message.state else []
        words = [message.time.encode(), message.id.encode(), *state, *words]
        # Bytes that are not text would disturb a terminal.
        shown = message.content if message.encoding != "base64" else b"base64:" + _text(message.body)
        return b" ".join([*words, shown]) + b"\n"
    return b" ".join([*words, message.content]) + b"\n"


def _text(body: msgspec.Raw) -> bytes:
    return msgspec.json.decode(body, type=str).encode()
