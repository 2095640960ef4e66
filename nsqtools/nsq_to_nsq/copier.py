"""Publishes each message to one of the destinations, and finishes it when that has answered OK."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial

from nsqclient import Config, Message, Producer, UnsupportedError
from nsqtools.consumers import running
from nsqtools.hosts import chooser
from nsqtools.nsq_to_nsq.filters import JsonFilter, NotAnObject, TooDeep
from nsqtools.nsq_to_nsq.options import ToNsqdOptions
from nsqtools.process import log_line
from nsqtools.timing import Timed

# How many bytes of a dropped message are shown.
SHOWN_BYTES = 200


class Copier:
    """The handlers of all topics, and the connections to the destinations."""

    def __init__(
        self,
        destinations: tuple[str, ...],
        mode: str,
        config: Config,
        passes: JsonFilter,
        timed: Timed,
        clock: Callable[[], float],
    ) -> None:
        self._producers = {address: Producer(address, config=config) for address in destinations}
        self._pool = chooser(mode, destinations, random.random)
        self._filter = passes
        self._timed = timed
        self._clock = clock
        # Destinations that get only bodies, because they do not support headers.
        self._without_headers: set[str] = set()

    def handler(self, destination_topic: str) -> Callable[[Message], Awaitable[None]]:
        """The handler of one topic's consumer, for ``auto_answer=False``: it does not wait for the OK."""

        async def handle(delivery: Message) -> None:
            try:
                body = self._filter.apply(delivery.body)
            except NotAnObject:
                shown = delivery.body[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
                log_line(f"ERROR: Unable to decode json: {shown}")
                body = None
            except TooDeep:
                log_line(
                    f"ERROR: message {delivery.id.decode()}: its json is nested too deep to be looked at"
                )
                delivery.requeue(None, backoff=False)
                return
            if body is None:
                delivery.finish()
                return
            began = self._clock()
            address = self._pool.pick(began)
            headers = {} if address in self._without_headers else delivery.headers
            confirmation = await self._producers[address].submit(destination_topic, body, headers=headers)
            confirmation.add_done_callback(partial(self._confirmed, delivery, address, began))

        return handle

    def _confirmed(
        self, delivery: Message, address: str, began: float, confirmation: "asyncio.Future[bytes]"
    ) -> None:
        ended = self._clock()
        if isinstance(confirmation.exception(), UnsupportedError):
            if address not in self._without_headers:
                log_line(f"{address} does not take headers: messages go there without them")
                self._without_headers.add(address)
            delivery.requeue(0, backoff=False)
            return
        if error := confirmation.exception():
            self._pool.failed(address, ended)
            log_line(
                f"ERROR: message {delivery.id.decode()} attempt {delivery.attempts}"
                f" not published to {address}: {error}"
            )
            delivery.requeue(None, backoff=True)
            return
        delivery.finish()
        self._pool.succeeded(address, ended - began, ended)
        self._timed.one(address, ended - began)
        self._timed.all(ended - began)

    async def close(self) -> None:
        for producer in self._producers.values():
            await producer.close()


async def copy_all(options: ToNsqdOptions, stop: asyncio.Event) -> None:
    """Copy messages until ``stop`` is set."""
    destinations = tuple(dict.fromkeys(options.destination_nsqd_tcp_address))
    copying = Copier(
        destinations,
        options.mode,
        options.client_config(options.producer_opt, headers=True),
        options.filter,
        Timed(destinations, options.status_every, log_line),
        asyncio.get_running_loop().time,
    )
    consumers = [
        options.consumer(
            topic,
            options.channel,
            copying.handler(options.destination_topic or topic),
            headers=True,
            auto_answer=False,
        )
        for topic in dict.fromkeys(options.topic)
    ]
    async with running(*consumers):
        await stop.wait()
    await copying.close()
