"""POST and GET /drain: publishes are refused, so that consumers can empty the node before it goes."""

from typing import Final

from nsqcore.service.httpapi import ApiError, Request, Response, json_reply
from nsqcore.service.logs import Log
from nsqd.engine.broker import Broker
from nsqd.engine.draining import report
from nsqd.server.tcp import Clients

_TRUE: Final = frozenset(("true", "1"))
_FALSE: Final = frozenset(("false", "0"))


class DrainApi:
    """Starts a drain, tells how far it is, takes it back. A restart takes it back, too."""

    def __init__(self, broker: Broker, clients: Clients, log: Log) -> None:
        self._broker = broker
        self._clients = clients
        self._log = log

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
        return json_reply(report(self._broker))

    async def state(self, _request: Request) -> Response:
        """What remains."""
        return json_reply(report(self._broker))
