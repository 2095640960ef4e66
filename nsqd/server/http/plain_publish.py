"""Which heads of HTTP requests are plain publishes: the grammar of the front. Pure.

HTTP has many ways to say where a request ends, and an attacker can use two readers that disagree on one of
them. So a head is either understood to the last byte, by rules narrower than HTTP's, or it is left to
aiohttp, which judges it as it judges every other request.
"""

import re
from typing import Final, NamedTuple

MAX_HEAD: Final = 8192
# aiohttp refuses more than 128.
_MAX_HEADERS: Final = 64

_START: Final = rb"POST /(m?)pub\?topic=([.a-zA-Z0-9_-]{1,64}) HTTP/1\.1\r\n"
_NAME: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_VALUE: Final = rb"[\t\x20-\x7e]*+"
_HEAD: Final = re.compile(rb"%b(?:%b:%b\r\n)++\r\n" % (_START, _NAME, _VALUE))
_HEADER: Final = re.compile(rb"\r\n(%b):[\t ]*+(%b)" % (_NAME, _VALUE))

_START_LINES: Final = (b"POST /pub?topic=", b"POST /mpub?topic=")
_VERSION: Final = b" HTTP/1.1\r\n"
_BEGUN: Final = re.compile(rb"POST /m?pub\?topic=[.a-zA-Z0-9_-]{0,64}+")
_BEGUN_HEADERS: Final = re.compile(
    rb"(?:%b:%b\r\n)*+(?:%b(?::%b\r?)?|\r\n?)?" % (_NAME, _VALUE, _NAME, _VALUE)
)

_LENGTH: Final = re.compile(rb"[0-9]{1,12}")
_HOST: Final = re.compile(rb"[0-9A-Za-z.:_\[\]-]*")
# The prefix of headers that belong to the message.
EXTENSION_PREFIX: Final = b"x-nsqext-"
# A request with one of these headers is not plain: its body may end elsewhere, or it may not be allowed.
_UNUSUAL: Final = frozenset(
    (
        b"expect",
        b"origin",
        b"sec-fetch-site",
        b"sec-websocket-key1",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)


class PlainPublish(NamedTuple):
    """A body of known length for a topic, on a persistent connection; with *lines* each line is a message."""

    topic: str
    length: int
    lines: bool = False


def understand(head: bytes) -> PlainPublish | None:
    """Parse a whole head, with its empty line; None when it is not plain."""
    request = _HEAD.fullmatch(head)
    if request is None:
        return None
    found = _HEADER.findall(head)
    headers = {name.lower(): value.rstrip(b"\t ") for name, value in found}
    if any(name.startswith(EXTENSION_PREFIX) for name in headers):
        return None
    if len(headers) != len(found) or len(found) > _MAX_HEADERS or not _UNUSUAL.isdisjoint(headers):
        return None
    host, length = headers.get(b"host"), headers.get(b"content-length")
    if host is None or _HOST.fullmatch(host) is None:
        return None
    if length is None or _LENGTH.fullmatch(length) is None:
        return None
    if headers.get(b"connection", b"keep-alive").lower() != b"keep-alive":
        return None
    return PlainPublish(request[2].decode(), int(length), bool(request[1]))


def may_become_plain(begun: bytes) -> bool:
    """Whether a head that begins with these bytes could be that of a plain publish."""
    words = _BEGUN.match(begun)
    if words is None:
        return any(usual.startswith(begun) for usual in _START_LINES)
    rest = begun[words.end() :]
    if not rest.startswith(_VERSION):
        return _VERSION.startswith(rest)
    return _BEGUN_HEADERS.fullmatch(rest, len(_VERSION)) is not None
