"""POST and GET /drain: publishes are refused, so that consumers can empty the node before it is removed."""

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final

from nsqcore.http.api import ApiError, Request, Response, json_reply
from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker
from nsqd.engine.drain_report import sentence
from nsqd.engine.draining import Unread, report
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.tcp import Clients

# How often the node searches for unread channels, in seconds. A search of ten thousand takes a millisecond.
_CHECK_INTERVAL_S: Final = 5.0
_MILLISECONDS: Final = re.compile(r"[0-9]{1,7}")


class Drain:
    """Starts a drain, shows its progress, cancels it. A restart cancels it too."""

    def __init__(
        self, broker: Broker, clients: Clients, log: Log, close_idle_publishers: Callable[[], None]
    ) -> None:
        self._close_idle_publishers = close_idle_publishers
        # Ends the time in which publishes are still accepted.
        self._refusal: asyncio.TimerHandle | None = None
        self._broker = broker
        self._clients = clients
        self._log = log
        self._unread = Unread()
        # Whether the last scrape of /metrics reported pending messages here.
        self.scraped_with_backlog = False

    async def begin(self, request: Request) -> Response:
        """Refuse publishes, after ``grace`` milliseconds; with ``cancel=true`` accept them again.

        During the grace the node is not ready, and each answer to a publisher closes its connection. So
        publishers have gone to other nodes before publishes are refused.
        """
        cancel = request.flag("cancel")
        text = request.query.get("grace", "0")
        if not _MILLISECONDS.fullmatch(text):
            raise ApiError(400, "INVALID_GRACE")
        if cancel:
            self._cancel()
        elif self._broker.drain_pending and not int(text):
            self._end_grace()
        elif not self._broker.draining and not int(text):
            self._refuse_publishes()
        elif not self._broker.leaving:
            self._broker.drain_pending = True
            self._refusal = asyncio.get_running_loop().call_later(int(text) / 1000, self._end_grace)
            self._log.info("NSQ: draining, publishes are refused in %s ms", text)
        return json_reply(self._report())

    def _cancel(self) -> None:
        if self._broker.leaving:
            self._log.info("NSQ: drain cancelled")
        self._stop_timer()
        self._broker.draining = False

    def _end_grace(self) -> None:
        # A decommission may have been cancelled, and the drain with it.
        if self._broker.drain_pending:
            self._refuse_publishes()
            self._close_idle_publishers()

    def _refuse_publishes(self) -> None:
        self._stop_timer()
        self._broker.draining = True
        # Sessions remember publish lines as allowed, which they are no longer.
        self._clients.forget_publish_lines()
        self._log.info("NSQ: draining, publishes are refused")

    def _stop_timer(self) -> None:
        self._broker.drain_pending = False
        if self._refusal is not None:
            self._refusal.cancel()
            self._refusal = None

    async def state(self, _request: Request) -> Response:
        """The messages that remain."""
        return json_reply(self._report())

    def remaining(self) -> int:
        """How many messages a drain still waits for; 0 without a drain."""
        return int(self._report()["remaining"]) if self._broker.leaving else 0

    def log_remaining(self) -> None:
        """Log the remaining messages, because the output of the drain command may be lost."""
        if not self._broker.draining:
            return
        state = self._report()
        if state["remaining"]:
            self._log.warning("NSQ: stopped before it was drained, on its disk %s", sentence(state))
        else:
            self._log.info("NSQ: drained, nothing remains")

    async def watch(self) -> None:
        """Note repeatedly which channels have no consumer, and since when."""
        while True:
            self._unread.update(self._broker, clock_ns())
            await asyncio.sleep(_CHECK_INTERVAL_S)

    def _report(self) -> dict[str, Any]:
        found = report(self._broker, self._unread, clock_ns())
        if found["drained"] and self.scraped_with_backlog:
            found["scraped_with_backlog"] = True
        return found
