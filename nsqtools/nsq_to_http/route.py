"""Sends a message to one address or to all."""

import random
from collections.abc import Callable, Mapping

from nsqtools.hosts import chooser
from nsqtools.nsq_to_http.options import ALL, ToHttpOptions
from nsqtools.nsq_to_http.sender import Sender, SendFailed
from nsqtools.process import log_line
from nsqtools.timing import Timed


class Route:
    """The route of a ``--mode``: one address for each message, or every address in turn.

    With several the first failure stops it, and later all get the message again.
    """

    def __init__(self, options: ToHttpOptions, sender: Sender, clock: Callable[[], float]) -> None:
        self._addresses = options.post or options.get
        self._pool = None if options.mode in ALL else chooser(options.mode, self._addresses, random.random)
        self._sender = sender
        self._timed = Timed(self._addresses, options.status_every, log_line)
        self._clock = clock

    async def send(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a message with these headers; raises SendFailed."""
        first = began = self._clock()
        for address in self._addresses if self._pool is None else [self._pool.pick(began)]:
            try:
                await self._sender.send(address, body, headers)
            except SendFailed as failure:
                if self._pool is not None:
                    self._pool.failed(address, self._clock())
                raise SendFailed(f"{address}: {failure}") from failure
            ended = self._clock()
            if self._pool is not None:
                self._pool.succeeded(address, ended - began, ended)
            self._timed.one(address, ended - began)
            began = ended
        self._timed.all(began - first)
