"""Where a consumer finds its nsqd: fixed addresses, or nsqlookupd asked again and again."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from nsqcore.client.config import Config
from nsqcore.cluster.models import Lookup
from nsqcore.version import ACCEPT
from nsqcore.wire.address import split_address

log = logging.getLogger("nsqcore.client")

# A lost nsqd is looked for this soon, then at doubling distances up to the poll interval; waiting a whole
# minute for one that merely restarted would leave its messages lying.
FIRST_RETRY_SECONDS: Final = 0.5

# Further nsqlookupds asked when one does not answer.
LOOKUPD_RETRIES: Final = 2


# What aiohttp makes of a server that speaks something else.
_NOT_HTTP: Final = (aiohttp.ServerDisconnectedError, aiohttp.ClientResponseError, aiohttp.ClientOSError)


class AddressSource(Protocol):
    """A source of nsqd addresses."""

    def rounds(self) -> AsyncIterator[list[str]]:
        """The addresses known now, again and again, with a pause before each but the first."""

    def hurry(self) -> None:
        """A connection was lost or refused: let the next round come soon."""

    async def close(self) -> None:
        """Give back what was held open."""


class Pace:
    """The distance between rounds: the interval; after a loss a short one, doubling up to the interval."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._retry: float | None = None
        self._hurried = asyncio.Event()

    @property
    def is_hurried(self) -> bool:
        return self._retry is not None

    def hurry(self) -> None:
        self._retry = FIRST_RETRY_SECONDS
        self._hurried.set()

    async def pause(self, extra: float = 0) -> None:
        """Wait for the next round; hurry() cuts a long wait short."""
        self._hurried.clear()
        wait = self._next_wait() or self._interval + extra
        try:
            async with asyncio.timeout(wait):
                await self._hurried.wait()
        except TimeoutError:
            return
        await asyncio.sleep(self._next_wait() or 0)

    def _next_wait(self) -> float | None:
        wait = self._retry
        if wait is not None:
            self._retry = wait * 2 if wait * 2 < self._interval else None
        return wait


class FixedAddresses:
    """Fixed nsqd addresses."""

    def __init__(self, addresses: Sequence[str], config: Config) -> None:
        for address in addresses:
            split_address(address)
        self._addresses = list(dict.fromkeys(addresses))
        self._pace = Pace(config.lookupd_poll_interval)

    async def rounds(self) -> AsyncIterator[list[str]]:
        while True:
            yield self.known
            await self._pace.pause()

    @property
    def known(self) -> list[str]:
        return list(self._addresses)

    def add(self, address: str) -> None:
        split_address(address)
        if address not in self._addresses:
            self._addresses.append(address)

    def remove(self, address: str) -> None:
        """Do not connect to it again; ValueError when it is not one of them."""
        self._addresses.remove(address)

    def hurry(self) -> None:
        self._pace.hurry()

    async def close(self) -> None:
        """Nothing is held open."""


class LookedUpAddresses:
    """Asks one nsqlookupd per round, each in turn, the next one when it does not answer."""

    def __init__(self, addresses: Sequence[str], topic: str, config: Config) -> None:
        self._urls = [lookup_url(address) for address in dict.fromkeys(addresses)]
        self._topic = topic
        self._config = config
        self._pace = Pace(config.lookupd_poll_interval)
        self._next = random.randrange(len(self._urls))
        self._session: aiohttp.ClientSession | None = None

    async def rounds(self) -> AsyncIterator[list[str]]:
        # Consumers that were started together must not all ask at the same times.
        jitter = random.random() * self._config.lookupd_poll_jitter * self._config.lookupd_poll_interval
        while True:
            yield await self._lookup()
            await self._pace.pause(extra=jitter)
            jitter = 0

    def hurry(self) -> None:
        self._pace.hurry()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _lookup(self) -> list[str]:
        found: list[str] = []
        for _ in range(LOOKUPD_RETRIES + 1):
            url = self._urls[self._next]
            self._next = (self._next + 1) % len(self._urls)
            try:
                found = await self._ask(url)
                break
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                log.error("error querying nsqlookupd (%s) - %s", url, _described(error))  # noqa: TRY400
        # Nothing to read from: a topic made a moment ago takes another moment to be announced.
        if not found and not self._pace.is_hurried:
            self._pace.hurry()
        return found

    async def _ask(self, url: str) -> list[str]:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._config.lookupd_poll_timeout)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._config.tls_config or True), timeout=timeout
            )
        headers = {"Accept": ACCEPT}
        if self._config.auth_secret and self._config.lookupd_authorization:
            headers["Authorization"] = f"Bearer {self._config.auth_secret}"
        async with self._session.get(url, params={"topic": self._topic}, headers=headers) as response:
            if response.status == 404 and b"TOPIC_NOT_FOUND" in await response.read():
                return []  # nobody has published or subscribed yet
            if response.status == 404:
                raise ValueError("there is no /lookup; nsqlookupd's HTTP port is 4161 by default")
            if response.status != 200:
                raise ValueError(f"status {response.status}")
            return producer_addresses(await response.json(content_type=None))


def _described(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, aiohttp.ClientConnectorError) or not isinstance(error, _NOT_HTTP):
        return str(error) or type(error).__name__
    return f"no answer in HTTP; is it a TCP port? nsqlookupd's HTTP port is 4161 by default ({error})"


def lookup_url(address: str) -> str:
    """``host:port`` or a URL as the URL to ask; ``/lookup`` unless the URL has a path of its own."""
    if "://" not in address:
        split_address(address)
        address = f"http://{address}"
    parts = urlsplit(address)
    path = parts.path if parts.path not in {"", "/"} else "/lookup"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def producer_addresses(answer: Any) -> list[str]:
    """The TCP addresses in an answer of /lookup, each once; ValueError when it is no such answer."""
    # nsqd before 1.0 wrapped its answers.
    if isinstance(answer, dict) and "producers" not in answer and isinstance(answer.get("data"), dict):
        answer = answer["data"]
    try:
        if "producers" not in answer:
            raise TypeError("no producers")
        found = Lookup.from_json(answer).producers
        if not all(node.broadcast_address and 0 < node.tcp_port < 1 << 16 for node in found):
            raise TypeError("a producer without an address")
    except (TypeError, AttributeError) as error:
        raise ValueError(f"the answer is not one of /lookup: {error}") from error
    return list(dict.fromkeys(node.tcp_address for node in found))
