"""POST and GET /drain: publishes are refused, so that consumers can empty the node before it is removed."""

import asyncio
from typing import Any, Final

from nsqcore.http.api import Request, Response, json_reply
from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker
from nsqd.engine.draining import report
from nsqd.engine.remains import sentence
from nsqd.engine.unread import Unread
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.tcp import Clients

# How often unread channels are looked for, in seconds. A look at ten thousand takes a millisecond.
_LOOK_S: Final = 5.0


class Drain:
    """Starts a drain, shows its progress, cancels it. A restart cancels it too."""

    def __init__(self, broker: Broker, clients: Clients, log: Log) -> None:
        self._broker = broker
        self._clients = clients
        self._log = log
        self._unread = Unread()
        # Whether the last scrape of /metrics was told of messages that are owed here.
        self.scraped_as_owing = False

    async def begin(self, request: Request) -> Response:
        """Refuse publishes from now on; with ``cancel=true`` take them again."""
        draining = not request.flag("cancel")
        if draining != self._broker.draining:
            self._broker.draining = draining
            if draining:
                # Sessions remember publish lines as allowed, which they are no longer.
                self._clients.forget_publish_lines()
            self._log.info("NSQ: draining, publishes are refused" if draining else "NSQ: drain cancelled")
        return json_reply(self._report())

    async def state(self, _request: Request) -> Response:
        """The messages that remain."""
        return json_reply(self._report())

    def remaining(self) -> int:
        """How many messages a drain still waits for; 0 without a drain."""
        return int(self._report()["remaining"]) if self._broker.draining else 0

    def say_what_stays(self) -> None:
        """Log what was not emptied, because nobody may read the output of the drain command."""
        if not self._broker.draining:
            return
        state = self._report()
        if state["remaining"]:
            self._log.warning("NSQ: stopped before it was drained, on its disk %s", sentence(state))
        else:
            self._log.info("NSQ: drained, nothing remains")

    async def watch(self) -> None:
        """Note again and again which channels nobody reads, and since when."""
        while True:
            self._unread.look(self._broker, clock_ns())
            await asyncio.sleep(_LOOK_S)

    def _report(self) -> dict[str, Any]:
        found = report(self._broker, self._unread, clock_ns())
        if found["drained"] and self.scraped_as_owing:
            found["scraped_as_owing"] = True
        return found
