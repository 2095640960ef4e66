"""What tests of the client share: consumers of channel c of topic t, and what an nsqd says about them."""

import asyncio
from concurrent.futures import Future
from functools import partial
from typing import Self

from nsqclient import Config, Consumer, Fixed, Message, Producer, Retry, sync
from nsqclient.testing import MemoryNsqd
from tests.support.processes import Daemon

CALM = Config(max_in_flight=100, max_backoff_duration=0)
# Back-off and requeue delays short enough to watch several rounds.
IMPATIENT = Config(max_in_flight=20, backoff_multiplier=0.05, max_backoff_duration=0.2)
SOON = Retry(delay=Fixed(0.01))


class Bodies(list[bytes]):
    """A handler that keeps the bodies that it gets, of one message or several."""

    def __call__(self, given: Message | list[Message]) -> None:
        self.extend(message.body for message in (given if isinstance(given, list) else [given]))


def fail(message: Message) -> None:
    raise ValueError(message.body)


def address_of(nsqd: Daemon | MemoryNsqd) -> str:
    return nsqd.address if isinstance(nsqd, MemoryNsqd) else nsqd.tcp_address


def consumer_of(*nsqd_and_handler, kind=Consumer, **settings) -> Consumer:
    """A consumer of the given nsqd, which are followed by its handler if it has one."""
    nsqds = [one for one in nsqd_and_handler if isinstance(one, Daemon | MemoryNsqd)]
    handler = nsqd_and_handler[-1] if len(nsqds) < len(nsqd_and_handler) else None
    addresses = [address_of(nsqd) for nsqd in nsqds]
    return kind("t", "c", handler, nsqd_addresses=addresses, **{"config": CALM, **settings})


async def publish(nsqd: Daemon | MemoryNsqd, *bodies: bytes) -> None:
    if isinstance(nsqd, MemoryNsqd):
        for body in bodies:
            nsqd.publish("t", body)
        return
    async with Producer(nsqd.tcp_address) as producer:
        await producer.multi_publish("t", bodies)


def message_count(nsqd: Daemon, topic: str = "t") -> int:
    topics = nsqd.get(f"/stats?format=json&topic={topic}")["topics"] or []
    return sum(stats["message_count"] for stats in topics)


def channel(nsqd: Daemon) -> dict:
    [stats] = nsqd.get("/stats?format=json&topic=t")["topics"]
    return next((one for one in stats["channels"] if one["channel_name"] == "c"), {})


def is_empty(nsqd: Daemon | MemoryNsqd) -> bool:
    """Whether the channel exists and has no messages; of an nsqd in memory, whether all are finished."""
    if isinstance(nsqd, MemoryNsqd):
        return len(nsqd.finished("t", "c")) == len(nsqd.published("t"))
    stats = channel(nsqd)
    return bool(stats) and stats["depth"] == stats["in_flight_count"] == stats["deferred_count"] == 0


class InThread:
    """An object of nsqclient.sync as coroutines use it: each of its calls runs in a thread."""

    def __init__(self, inner) -> None:
        self.inner = inner
        self._iterator = iter(())

    def __getattr__(self, name: str):
        found = getattr(self.inner, name)
        if name == "drain":
            return lambda *args, **settings: InThread(found(*args, **settings))
        return partial(self._call, found) if callable(found) else found

    async def _call(self, method, *args, **settings):
        result = await asyncio.to_thread(method, *args, **settings)
        return asyncio.wrap_future(result) if isinstance(result, Future) else result

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.inner.__enter__)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.inner.__exit__, *error)

    def __aiter__(self) -> Self:
        self._iterator = iter(self.inner)
        return self

    async def __anext__(self):
        message = await asyncio.to_thread(next, self._iterator, None)
        if message is None:
            raise StopAsyncIteration
        return message


class Face:
    """One of the two faces of the client, with the same operations for a test."""

    def __init__(self, name: str) -> None:
        self.is_sync = name == "threads"

    def producer(self, *args, **settings):
        return InThread(sync.Producer(*args, **settings)) if self.is_sync else Producer(*args, **settings)

    def consumer(self, *nsqd_and_handler, **settings):
        kind = sync.Consumer if self.is_sync else Consumer
        made = consumer_of(*nsqd_and_handler, kind=kind, **settings)
        return InThread(made) if self.is_sync else made
