"""Sends one message as one HTTP request."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Self
from urllib.parse import quote, quote_plus

import aiohttp
from yarl import URL

from nsqclient.wire.version import NSQ_VERSION
from nsqtools.nsq_to_http.headers import fits

USER_AGENT: Final = f"nsq_to_http v{NSQ_VERSION}"

MAX_REDIRECTS: Final = 10
_DROPPED_BYTES: Final = 1 << 16
# Only the status of an answer matters, so it must not be a reason to send a message again.
# Go's client accepts as much.
_HEAD_BYTES: Final = 10 << 20
_HEADERS: Final = 1 << 12

_PREFIX: Final = "X-NSQEXT-"
# %s is the message. %% is one %, because the address is a format string in the original.
_PLACEHOLDER: Final = re.compile("%s|%%")
# Any text has these three parts: up to the host, the path, and the rest.
_PARTS: Final = re.compile(r"((?:[^/?#]*//)?[^/?#]*)([^?#]*)(.*)", re.DOTALL)
_UNFIT: Final = re.compile(r"[^!-~]+")
_UNFIT_IN_PATH: Final = re.compile(r"[^!-~]+|[\"<>\\^`{|}]+")


class SendFailed(Exception):
    """The reason why an address did not accept the message."""


class Sender:
    """Sends messages over its connections: by POST as the body; without *content_type* by GET in the address.

    Both timeouts are in seconds, and that of the request covers all of it.
    """

    def __init__(
        self,
        content_type: str | None,
        headers: Mapping[str, str],
        *,
        connect_timeout: float,
        request_timeout: float,
    ) -> None:
        self._is_post = content_type is not None
        self._headers = _headers({"Content-Type": content_type} if content_type is not None else {}, headers)
        self._connect_timeout = connect_timeout
        self._request_timeout = request_timeout
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # -n is the limit
            timeout=aiohttp.ClientTimeout(total=self._request_timeout, sock_connect=self._connect_timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            max_line_size=_HEAD_BYTES,
            max_field_size=_HEAD_BYTES,
            max_headers=_HEADERS,
            skip_auto_headers=("Accept", "Content-Type", "User-Agent"),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def send(self, address: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Send the message with these headers and those of all messages; raises SendFailed."""
        url = url_of(address) if self._is_post else get_url(address, body)
        try:
            async with self._session.request(
                "POST" if self._is_post else "GET",
                url,
                data=body if self._is_post else None,
                headers={**headers, **self._headers},
                max_redirects=MAX_REDIRECTS,
            ) as response:
                # The body is discarded. One that ends lets the next request have this connection.
                with suppress(TimeoutError, aiohttp.ClientError, OSError):
                    async for _ in response.content.iter_chunked(_DROPPED_BYTES):
                        pass
                status = response.status
        except TimeoutError as error:
            raise SendFailed(f"no answer within {self._request_timeout:g}s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise SendFailed(str(error) or type(error).__name__) from error
        if not 200 <= status < 300:
            raise SendFailed(f"got status code {status}")


def forwarded_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a request for those of a message; nsqd's ``/pub`` turns them back into message headers.

    Headers that a request cannot hold are left out: names that are no words, values with control characters.
    """
    return {f"{_PREFIX}{name}": value for name, value in headers.items() if fits(name, value)}


def get_url(address: str, body: bytes) -> URL:
    """The address with the message in it, escaped as in a query."""
    text = _PLACEHOLDER.sub(lambda found: quote_plus(body) if found[0] == "%s" else "%", address)
    return url_of(text)


def url_of(address: str) -> URL:
    """The address as typed, with characters escaped that a path or a request line may not hold."""
    parts = _PARTS.fullmatch(address)
    assert parts is not None, "every text has three parts"  # noqa: S101 - for the type checker
    host, path, query = parts.groups()
    path, query = (
        unfit.sub(lambda found: quote(found[0]), text)
        for unfit, text in ((_UNFIT_IN_PATH, path), (_UNFIT, query))
    )
    return URL(host + path + query, encoded=True)


def _headers(ours: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Combine headers: the given ones replace those of the same name in any letter case."""
    replaced = {name.lower() for name in given}
    defaults = {"User-Agent": USER_AGENT, "Accept-Encoding": "gzip", **ours}
    return {**{name: value for name, value in defaults.items() if name.lower() not in replaced}, **given}
