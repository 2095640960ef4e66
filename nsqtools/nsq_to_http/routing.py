"""Sends a message to one address or to all."""

import random
from collections.abc import Callable, Mapping
from typing import Protocol

from nsqtools.hosts import chooser
from nsqtools.nsq_to_http.options import ALL, ToHttpOptions
from nsqtools.nsq_to_http.sending import Sender, SendFailed
from nsqtools.timing import Timed


class AddressRoute(Protocol):
    async def send(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a message with these headers to its address or addresses; raises SendFailed."""
        ...


def route(options: ToHttpOptions, sender: Sender, timed: Timed, clock: Callable[[], float]) -> AddressRoute:
    """The route of a ``--mode``."""
    addresses = options.post or options.get
    if options.mode in ALL:
        return ToAll(addresses, sender, timed, clock)
    return ToOne(options.mode, addresses, sender, timed, clock)


class ToOne:
    """Each message goes to one address."""

    def __init__(
        self,
        mode: str,
        addresses: tuple[str, ...],
        sender: Sender,
        timed: Timed,
        clock: Callable[[], float],
    ) -> None:
        self._pool = chooser(mode, addresses, random.random)
        self._sender = sender
        self._timed = timed
        self._clock = clock

    async def send(self, body: bytes, headers: Mapping[str, str]) -> None:
        began = self._clock()
        address = self._pool.pick(began)
        try:
            await self._sender.send(address, body, headers)
        except SendFailed as failure:
            self._pool.failed(address, self._clock())
            raise SendFailed(f"{address}: {failure}") from failure
        ended = self._clock()
        self._pool.succeeded(address, ended - began, ended)
        self._timed.one(address, ended - began)
        self._timed.all(ended - began)


class ToAll:
    """Each message goes to every address in turn. The first failure stops it, and later all get it again."""

    def __init__(
        self, addresses: tuple[str, ...], sender: Sender, timed: Timed, clock: Callable[[], float]
    ) -> None:
        self._addresses = addresses
        self._sender = sender
        self._timed = timed
        self._clock = clock

    async def send(self, body: bytes, headers: Mapping[str, str]) -> None:
        first = began = self._clock()
        for address in self._addresses:
            try:
                await self._sender.send(address, body, headers)
            except SendFailed as failure:
                raise SendFailed(f"{address}: {failure}") from failure
            ended = self._clock()
            self._timed.one(address, ended - began)
            began = ended
        self._timed.all(began - first)
