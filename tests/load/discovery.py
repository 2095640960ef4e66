"""Which nsqd there are, asked of nsqlookupd over HTTP."""

import http.client
import json
from typing import Any
from urllib.parse import quote

TIMEOUT_SECONDS = 5


def producers_of(lookupd_http_address: str, topic: str) -> list[str]:
    """Return the TCP addresses of all nsqd that have a topic; none while nobody has published to it."""
    return _addresses(lookupd_http_address, f"/lookup?topic={quote(topic, safe='')}")


def all_nsqd(lookupd_http_address: str) -> list[str]:
    """Return the TCP addresses of all nsqd that are registered."""
    return _addresses(lookupd_http_address, "/nodes")


def _addresses(lookupd_http_address: str, path: str) -> list[str]:
    connection = http.client.HTTPConnection(lookupd_http_address, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status == 404:
        return []
    if response.status != 200:
        raise ConnectionError(f"nsqlookupd at {lookupd_http_address} answered {path} with {response.status}")
    answer: dict[str, Any] = json.loads(body)
    return sorted(f"{nsqd['broadcast_address']}:{nsqd['tcp_port']}" for nsqd in answer["producers"])
