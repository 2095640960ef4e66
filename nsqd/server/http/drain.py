"""POST and GET /drain: publishes are refused, so that consumers can empty the node before it goes."""

import asyncio
import re
from typing import Any, Final

from nsqcore.http.api import ApiError, Request, Response, json_reply
from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker
from nsqd.engine.draining import report
from nsqd.engine.remains import sentence
from nsqd.engine.unread import Unread
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.replication.departure import Departure
from nsqd.server.tcp import Clients

_TRUE: Final = frozenset(("true", "1"))
_FALSE: Final = frozenset(("false", "0"))
_ADDRESS: Final = re.compile(r"[^\s:/?#]+:\d{1,5}|\[[0-9a-fA-F:.]+\]:\d{1,5}")
# How exactly it is known since when nobody reads a channel. A look at ten thousand takes a millisecond.
_LOOK_S: Final = 5.0


def _flag(value: str, invalid: str) -> bool:
    """Raises ApiError."""
    if value not in _TRUE | _FALSE:
        raise ApiError(400, invalid)
    return value in _TRUE


class Drain:
    """Starts a drain, tells how far it is, takes it back. A restart takes it back as well."""

    def __init__(self, broker: Broker, clients: Clients, log: Log) -> None:
        self._broker = broker
        self._clients = clients
        self._log = log
        self._unread = Unread()
        # Set when the data path is loaded.
        self.departure: Departure | None = None

    async def begin(self, request: Request) -> Response:
        """Refuse publishes from now on; with ``cancel=true`` take them again.

        With ``hand_over=true`` what is left goes to another nsqd: to the best there is, or to that ``taker``.
        """
        cancel = _flag(request.query.get("cancel", "false"), "INVALID_CANCEL")
        hand_over = _flag(request.query.get("hand_over", "false"), "INVALID_HAND_OVER")
        to = request.query.get("taker", "")
        if to and not _ADDRESS.fullmatch(to):
            raise ApiError(400, "INVALID_TAKER")
        draining = not cancel
        departure = self.departure
        if cancel and departure is not None:
            if not departure.may_be_cancelled:
                raise ApiError(409, "HANDED_OVER")
            await departure.cancel()
        if draining != self._broker.draining:
            self._broker.draining = draining
            if draining:
                # What a session learnt about its lines says that they may be published.
                self._clients.forget_publish_lines()
            self._log.info("NSQ: draining, publishes are refused" if draining else "NSQ: drain cancelled")
        if hand_over and draining and departure is not None:
            departure.begin(to, self._broker.limits.msg_timeout_ns / 1e9)
        return json_reply(self._report())

    async def stop(self) -> None:
        """The node stops: what is not handed over stays."""
        if self.departure is not None:
            await self.departure.cancel()

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
        found = report(self._broker, self._unread, clock_ns())
        if self.departure is not None:
            if self.departure.under_way:
                # What is held does not wait here, and is not another's yet.
                found["drained"] = False
            elif self.departure.handed_to:
                # What the files here say is another's by now.
                found |= {"drained": True, "remaining": 0, "topics": []}
            if self.departure.progress.state != "idle":
                found["hand_over"] = self.departure.progress.shown()
        return found
