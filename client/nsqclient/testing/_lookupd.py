"""The answers of an nsqlookupd that names one nsqd, so that programs which ask it are tested unchanged."""

import json
from typing import Final

from nsqclient.wire.address import split_address
from nsqclient.wire.version import NSQ_VERSION

_PATHS: Final = frozenset(("/lookup", "/lookup/producers", "/nodes"))


def lookup_answer(nsqd: str, head: bytes) -> bytes:
    """The answer over HTTP to the request with this head: *nsqd* has every topic."""
    words = head.split(maxsplit=2)
    path = words[1].decode(errors="replace").partition("?")[0] if len(words) > 1 else ""
    status = "404 Not Found"
    answer: dict[str, object] = {"message": "NOT_FOUND"}
    if path in _PATHS:
        host, port = split_address(nsqd)
        producer = {
            "broadcast_address": host,
            "hostname": host,
            "remote_address": nsqd,
            "tcp_port": port,
            "http_port": port,
            "version": NSQ_VERSION,
        }
        status, answer = "200 OK", {"channels": [], "producers": [producer]}
    body = json.dumps(answer).encode()
    lines = (
        f"HTTP/1.1 {status}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + body
