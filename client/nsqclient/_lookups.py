"""Asks nsqlookupd over HTTP which nsqd have a topic, and which accept publishes.

Imported when needed: without nsqlookupd the modules for HTTP and URLs would be a tenth of all imports.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any, Final, TypeGuard
from urllib.parse import urlencode, urlsplit, urlunsplit

from nsqclient._config import Config
from nsqclient._http import HttpAnswer, HttpError, get
from nsqclient.wire.address import join_host_port, split_address
from nsqclient.wire.version import ACCEPT

log = logging.getLogger("nsqclient")

_OK: Final = 200
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404

# Errors that reading an answer may raise; RecursionError comes from deep nesting.
_UNUSABLE: Final = (ValueError, TypeError, AttributeError, RecursionError)


async def nsqds_to_publish_to(url: str, config: Config) -> list[str]:
    """The addresses of the nsqd that take messages, according to the nsqlookupd at *url*.

    Raises HttpError and ValueError, as :func:`nsqds_of` does.
    """
    answer = await _get(_beside(url, "/lookup/producers"), {}, config)
    if answer.status == _NOT_FOUND:
        answer = await _get(_beside(url, "/nodes"), {}, config)  # the original has only this
    return _addresses(answer, "/nodes")


async def nsqds_of(topic: str, url: str, config: Config) -> list[str]:
    """The addresses of the nsqd that have *topic*, according to the nsqlookupd at *url*."""
    answer = await _get(url, {"topic": topic}, config)
    if answer.status == _NOT_FOUND and b"TOPIC_NOT_FOUND" in answer.body:
        return []  # no client has published or subscribed yet
    return _addresses(answer, "/lookup")


async def _get(url: str, params: Mapping[str, str], config: Config) -> HttpAnswer:
    """Ask with the TLS settings and the secret of *config*."""
    headers = {"Accept": ACCEPT, "User-Agent": config.user_agent}
    if config.auth_secret and config.lookupd_authorization:
        headers["Authorization"] = f"Bearer {config.auth_secret}"
    url = _with(url, params)
    tls, timeout = config.lookupd_tls_context, config.lookupd_poll_timeout
    answer = await get(url, headers=headers, tls=tls, seconds=timeout)
    if answer.status == _FORBIDDEN and (upgraded := _https(url, answer.body)):
        answer = await get(upgraded, headers=headers, tls=tls, seconds=timeout)
    return answer


def log_failure(url: str, error: Exception) -> None:
    """Log why an nsqlookupd gave no answer, with the traceback of an unexpected error."""
    unforeseen = None if isinstance(error, OSError | ValueError) else error
    log.error("error querying nsqlookupd (%s) - %s", url, error, exc_info=unforeseen)


def lookup_url(address: str) -> str:
    """The URL to ask, from ``host:port`` or a URL; its path is ``/lookup`` unless the URL has one."""
    if "://" not in address:
        split_address(address)
        address = f"http://{address}"
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"address {address!r} is neither host:port nor a URL of http or https")
    if parts.username is not None:
        raise ValueError("a URL of nsqlookupd cannot hold a user; auth_secret is sent as a bearer token")
    path = parts.path if parts.path not in {"", "/"} else "/lookup"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def producer_addresses(answer: Any) -> list[str]:
    """The TCP addresses in an answer of nsqlookupd, each once; ValueError when it is another answer."""
    # nsqlookupd before 1.0 wrapped its answers.
    if isinstance(answer, dict) and "producers" not in answer and isinstance(answer.get("data"), dict):
        answer = answer["data"]
    try:
        # Go writes an empty list as null.
        found = [_address(node) for node in answer["producers"] or ()]
    except (TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"the answer is not one of /lookup: {error}") from error
    return list(dict.fromkeys(found))


def _address(node: Mapping[str, Any]) -> str:
    host, port = node["broadcast_address"], node["tcp_port"]
    if not isinstance(host, str) or not host or not host.isprintable() or not _is_port(port):
        raise TypeError("a producer without an address")
    return join_host_port(host, port)


def _is_port(port: object) -> TypeGuard[int]:
    return isinstance(port, int) and not isinstance(port, bool) and 0 < port < 1 << 16


def _addresses(answer: HttpAnswer, path: str) -> list[str]:
    if answer.status == _NOT_FOUND:
        raise HttpError(f"there is no {path}; nsqlookupd's HTTP port is 4161 by default")
    if answer.status != _OK:
        raise HttpError(f"status {answer.status}{_cause(answer)}")
    try:
        return producer_addresses(json.loads(answer.body))
    except RecursionError as error:
        raise ValueError("the answer is not JSON that can be read") from error


def _cause(answer: HttpAnswer) -> str:
    """The cause given by an answer that reports a failure."""
    if answer.location:
        return f", it points to {answer.location}"
    try:
        said = json.loads(answer.body)["message"]
    except (*_UNUSABLE, LookupError):
        said = answer.body[:200].decode("utf-8", "replace").strip().partition("\n")[0]
    return f": {said}" if said else ""


def _with(url: str, params: Mapping[str, str]) -> str:
    parts = urlsplit(url)
    query = "&".join(part for part in (parts.query, urlencode(params)) if part)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))


def _beside(url: str, path: str) -> str:
    """Another path of the nsqlookupd whose ``/lookup`` is *url*; a proxy may have put it below a folder."""
    parts = urlsplit(url)
    folder = parts.path.removesuffix("/lookup") if parts.path.endswith("/lookup") else parts.path.rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, folder + path, parts.query, ""))


def _https(url: str, refusal: bytes) -> str | None:
    """The URL at which a node that requires TLS can be asked; None when its refusal names no port."""
    try:
        port = json.loads(refusal)["https_port"]
    except (*_UNUSABLE, LookupError):
        return None
    if not _is_port(port):
        return None
    parts = urlsplit(url)
    return urlunsplit(("https", join_host_port(parts.hostname or "", port), parts.path, parts.query, ""))
