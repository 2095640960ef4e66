"""Putting round a connection what was granted to it, one layer after another: TLS, then a compression."""

import asyncio
import ssl
from typing import Protocol, cast

from nsqclient.net.layers import Compressed
from nsqclient.wire.compression import Deflate, Snappy
from nsqcore.process.logs import Log
from nsqd.protocol.identify import Upgrade
from nsqd.protocol.session import Session
from nsqd.server.layers import Tls


class Upgradable(Protocol):
    """A connection that is changed; it is the protocol of its transport."""

    @property
    def peer(self) -> str: ...

    @property
    def session(self) -> Session: ...

    def rest(self) -> None:
        """Nothing is to be said of its own accord until it is changed."""

    def answer(self) -> None: ...

    def upgraded(self, transport: asyncio.Transport) -> None:
        """Send through this from now on."""


class Upgrades:
    """The upgrades of one connection; see the module."""

    __slots__ = ("_connection", "_log", "_shaking_hands", "_tls")

    def __init__(self, connection: Upgradable, log: Log, tls: ssl.SSLContext | None) -> None:
        self._connection = connection
        self._log = log
        self._tls = tls
        self._shaking_hands = False

    def next(self, transport: asyncio.Transport) -> None:
        """Put round *transport* what was granted next; the last thing said without it is written."""
        connection = self._connection
        session = connection.session
        if self._shaking_hands or not session.upgrading:
            # A second answer of the same moment: the first has done it, or is about to.
            return
        connection.rest()
        upgrade, level = session.upgrading[0], session.settings.deflate_level
        shown = f"{upgrade.value} (level {level})" if upgrade is Upgrade.DEFLATE else upgrade.value
        self._log.info("PROTOCOL(V2): [%s] upgrading connection to %s", connection.peer, shown)
        as_protocol = cast("asyncio.Protocol", connection)
        if upgrade is Upgrade.TLS:
            self._shaking_hands = True
            # Granted only with a certificate, which is what the context is made of.
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
