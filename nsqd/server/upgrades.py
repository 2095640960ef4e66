"""Putting granted layers around a connection, one after another: TLS, then a compression."""

import asyncio
import ssl
from typing import Protocol, cast

from nsqclient.net.layers import Compressed
from nsqclient.wire.compression import Deflate, Snappy
from nsqcore.process.logs import Log
from nsqcore.process.tls_layer import Tls
from nsqd.protocol.identify import Upgrade
from nsqd.protocol.session import Session


class Upgradable(Protocol):
    """A connection that is upgraded; it is the protocol of its transport."""

    @property
    def peer(self) -> str: ...

    @property
    def session(self) -> Session: ...

    def rest(self) -> None:
        """Send nothing unasked, such as heartbeats, until the connection is upgraded."""

    def answer(self) -> None: ...

    def upgraded(self, transport: asyncio.Transport) -> None:
        """Use *transport* from now on."""


class Upgrades:
    """The upgrades of one connection; see the module."""

    __slots__ = ("_connection", "_log", "_shaking_hands", "_tls")

    def __init__(self, connection: Upgradable, log: Log, tls: ssl.SSLContext | None) -> None:
        self._connection = connection
        self._log = log
        self._tls = tls
        self._shaking_hands = False

    def next(self, transport: asyncio.Transport) -> None:
        """Put the next granted layer around *transport*, after the last reply without it was written."""
        connection = self._connection
        session = connection.session
        if self._shaking_hands or not session.upgrading:
            # An earlier answer of the same turn has started the upgrade, or done it.
            return
        connection.rest()
        upgrade, level = session.upgrading[0], session.settings.deflate_level
        shown = f"{upgrade.value} (level {level})" if upgrade is Upgrade.DEFLATE else upgrade.value
        self._log.info("PROTOCOL(V2): [%s] upgrading connection to %s", connection.peer, shown)
        as_protocol = cast("asyncio.Protocol", connection)
        if upgrade is Upgrade.TLS:
            self._shaking_hands = True
            # TLS is granted only with a certificate, so the context exists.
            Tls(transport, as_protocol, cast("ssl.SSLContext", self._tls), self._shook_hands)
            return
        codec = Deflate(level) if upgrade is Upgrade.DEFLATE else Snappy()
        connection.upgraded(Compressed(transport, as_protocol, codec))

    def _shook_hands(self, tls: Tls, why_not: str) -> None:
        self._shaking_hands = False
        if why_not:
            self._connection.session.upgrade_failed(why_not)
            self._connection.answer()
        else:
            self._connection.upgraded(tls)
