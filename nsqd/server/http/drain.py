"""POST and GET /drain: publishes are refused, so that consumers can empty the node before it goes."""

import asyncio
from typing import Any, Final

from nsqcore.http.api import ApiError, Request, Response, json_reply
from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker
from nsqd.engine.draining import report
from nsqd.engine.remains import sentence
from nsqd.engine.unread import Unread
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.tcp import Clients

_TRUE: Final = frozenset(("true", "1"))
_FALSE: Final = frozenset(("false", "0"))
# How exactly it is known since when nobody reads a channel. A look at ten thousand takes a millisecond.
_LOOK_S: Final = 5.0


class Drain:
    """Starts a drain, tells how far it is, takes it back. A restart takes it back as well."""

    def __init__(self, broker: Broker, clients: Clients, log: Log) -> None:
        self._broker = broker
        self._clients = clients
        self._log = log
        self._unread = Unread()

    async def begin(self, request: Request) -> Response:
        """Refuse publishes from now on; with ``cancel=true`` take them again."""
        cancel = request.query.get("cancel", "false")
        if cancel not in _TRUE | _FALSE:
            raise ApiError(400, "INVALID_CANCEL")
        draining = cancel in _FALSE
        if draining != self._broker.draining:
            self._broker.draining = draining
            if draining:
                # What a session learnt about its lines says that they may be published.
                self._clients.forget_publish_lines()
            self._log.info("NSQ: draining, publishes are refused" if draining else "NSQ: drain cancelled")
        return json_reply(self._report())

    async def state(self, _request: Request) -> Response:
        """What remains."""
        return json_reply(self._report())

    def remaining(self) -> int:
        """How many messages a drain has still to wait for; 0 while there is none."""
        return int(self._report()["remaining"]) if self._broker.draining else 0

    def say_what_stays(self) -> None:
        """Say in the node's own log what was not emptied; nobody may read what the command says."""
        if not self._broker.draining:
            return
        state = self._report()
        if state["remaining"]:
            self._log.warning("NSQ: stopped before it was drained, on its disk %s", sentence(state))
        else:
            self._log.info("NSQ: drained, nothing remains")

    async def watch(self) -> None:
        """Keep knowing since when nobody reads."""
        while True:
            self._unread.look(self._broker, clock_ns())
            await asyncio.sleep(_LOOK_S)

    def _report(self) -> dict[str, Any]:
        return report(self._broker, self._unread, clock_ns())
