"""Reports actions of admins to an HTTP endpoint; an unresponsive endpoint never delays them."""

import asyncio
import json
import re
from typing import Any, Final

import aiohttp
import msgspec

from nsqcore.process.logs import Log

# Enough for any admin. When so many notifications are queued, the endpoint is down: further ones are dropped.
QUEUE_LIMIT: Final = 1000


class AdminAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One action of an admin, with the keys and the order of the notification's JSON."""

    action: str
    topic: str
    channel: str = ""
    node: str = ""
    timestamp: int
    user: str = ""
    remote_ip: str
    user_agent: str
    url: str
    via: str
    # The person as far as verified; the contract's ``user`` comes from HTTP Basic authentication.
    acl_user: str = ""


def origin_of(url: str) -> str:
    """Return scheme and host of an address: the rest may be a secret, as in the address of a webhook."""
    scheme, slashes, rest = url.partition("://")
    return scheme + slashes + re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]


# A word for the log, and the object that is posted.
News = tuple[str, dict[str, Any]]


class Notifier:
    """Posts notifications to ``endpoint`` in order; without an endpoint it does nothing."""

    def __init__(self, endpoint: str, log: Log, *, connect_timeout: float, request_timeout: float) -> None:
        self._endpoint = endpoint
        self._log = log
        self._timeout = aiohttp.ClientTimeout(total=request_timeout, sock_connect=connect_timeout)
        self._queue: asyncio.Queue[News] = asyncio.Queue(QUEUE_LIMIT)

    def notify(self, word: str, payload: dict[str, Any]) -> None:
        if not self._endpoint:
            return
        try:
            self._queue.put_nowait((word, payload))
        except asyncio.QueueFull:
            self._log.error("notification of %s dropped: %d are waiting", word, QUEUE_LIMIT)

    async def run(self) -> None:
        """Deliver until cancelled."""
        async with aiohttp.ClientSession(timeout=self._timeout) as session:
            while True:
                await self._post(session, *await self._queue.get())

    async def _post(self, session: aiohttp.ClientSession, word: str, payload: dict[str, Any]) -> None:
        body = json.dumps(payload, separators=(",", ":"))
        headers = {"Content-Type": "application/json"}
        try:
            async with session.post(self._endpoint, data=body, headers=headers) as response:
                await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._log.error(
                "failed to POST notification of %s to %s: %s",
                word,
                origin_of(self._endpoint),
                str(error) or type(error).__name__,
            )
