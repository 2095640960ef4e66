"""An even load on a cluster in which every single message is counted; a line of JSON each second.

    python -m nsqtools.counted_load --lookupd-http-address=127.0.0.1:4161 --rate=300

With the addresses of a Service of nsqd, producers that reach nsqd through it take turns with the one that
looks nodes up; see `counted_producers`. No producer tries anything again: failed publishes are counted as
well as lost messages. It runs until SIGTERM or for --seconds, waits for the messages that are still under
way, and ends with 0 when no publish failed and no message is missing.
"""

import asyncio
import json
import logging
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from nsqclient._config import Config
from nsqclient._consumer import Consumer
from nsqclient._producer import Producer
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.options.arguments import ArgumentParser
from nsqcore.process.lifecycle import handle_signal
from nsqcore.process.output import write_message
from nsqtools.counted_producers import HttpProducer, Publisher, RawProducer
from nsqtools.selftest import SelfTestError, add_client_flags, client_config

_TICK_SECONDS: Final = 0.01
_LOOKUP_SECONDS: Final = 0.1
# How long messages that are under way at the end may take to arrive.
_LAST_SECONDS: Final = 60.0


class CountedLoad:
    """Publishes numbers at an even rate, one per message, and tracks the outcome of each."""

    def __init__(self, producers: Mapping[str, Publisher], topic: str, rate: float) -> None:
        """*producers* by kind take turns."""
        self._producers = list(producers.items())
        self._topic = topic
        self._rate = rate
        self.confirmed: set[int] = set()
        self.received: set[int] = set()
        self.twice = 0
        self.failed: list[str] = []
        self.failed_by_kind: Counter[str] = Counter()
        self.slowest_s = 0.0
        # Of the publishes since `take_slowest` was called last.
        self._recent_slowest_s = 0.0
        self._arrived = asyncio.Event()
        self._stop = asyncio.Event()

    @property
    def missing(self) -> set[int]:
        """The numbers that were confirmed and not received so far."""
        return self.confirmed - self.received

    def take(self, body: bytes) -> None:
        """Note the message that a consumer received."""
        number = int(body)
        self.twice += number in self.received
        self.received.add(number)
        self._arrived.set()

    async def all_received(self, seconds: float) -> bool:
        """Wait until no message is missing; False when that takes longer than *seconds*."""
        try:
            async with asyncio.timeout(seconds):
                while self.missing:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return False
        return True

    async def _publish(self, number: int) -> None:
        began = time.monotonic()
        kind, producer = self._producers[number % len(self._producers)]
        try:
            await producer.publish(self._topic, b"%d" % number)
        except Exception as error:  # noqa: BLE001 - every error counts
            self.failed.append(f"{kind} {number}: {error!r}")
            self.failed_by_kind[kind] += 1
        else:
            self.confirmed.add(number)
            took_s = time.monotonic() - began
            self.slowest_s = max(self.slowest_s, took_s)
            self._recent_slowest_s = max(self._recent_slowest_s, took_s)

    async def run(self) -> None:
        """Publish until stop(), and wait for the answers."""
        began, last = time.monotonic(), 0
        async with asyncio.TaskGroup() as publishes:
            while not self._stop.is_set():
                due = int((time.monotonic() - began) * self._rate)
                for number in range(last + 1, due + 1):
                    publishes.create_task(self._publish(number))
                last = max(last, due)
                await asyncio.sleep(_TICK_SECONDS)

    def stop(self) -> None:
        """Stop publishing."""
        self._stop.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Publish until the end of the block, or until stop()."""
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            self.stop()
            await task

    def take_slowest(self) -> float:
        """Return the seconds of the slowest publish since the last call."""
        slowest_s, self._recent_slowest_s = self._recent_slowest_s, 0.0
        return slowest_s

    def statistics(self) -> dict[str, Any]:
        return {
            "confirmed": len(self.confirmed),
            "failed": len(self.failed),
            "failed_by_kind": dict(self.failed_by_kind),
            "received": len(self.received),
            "twice": self.twice,
            "missing": len(self.missing),
            "slowest_publish_ms": round(self.slowest_s * 1000),
            "last_failure": self.failed[-1] if self.failed else "",
        }


class LookupWatch:
    """Asks one address for the topic again and again, and counts the answers that name too few nsqd."""

    def __init__(self, address: str, topic: str, producers: int) -> None:
        self._address = address
        self._topic = topic
        self._producers = producers
        self.asked = 0
        self.wrong = 0
        self.unanswered = 0

    async def run(self, config: Config) -> None:
        async with ClusterHttp(tls=config.lookupd_tls_context) as http:
            lookupd = LookupdApi(http, self._address)
            while True:
                try:
                    found = await lookupd.lookup(self._topic)
                except NodeError as error:
                    # The answer that the topic is not known counts as wrong.
                    self.wrong += error.status is not None
                    self.unanswered += error.status is None
                else:
                    self.wrong += len(found.producers) < self._producers
                self.asked += 1
                await asyncio.sleep(_LOOKUP_SECONDS)


@asynccontextmanager
async def producers_of(
    lookupd: str, tcp_service: str, http_service: str, config: Config
) -> AsyncIterator[dict[str, Publisher]]:
    """One producer of each kind that the given addresses allow, by kind."""
    found: dict[str, Any] = {
        "lookupd": Producer(lookupd_addresses=[lookupd], config=replace(config, lookupd_poll_interval=60))
    }
    if tcp_service:
        found["service"] = Producer(tcp_service, config=config)
        found["service-retry"] = Producer(tcp_service, retry_seconds=60, config=config)
        if not config.tls and not config.auth_secret:
            found["raw"] = RawProducer(tcp_service)
    if http_service:
        found["http"] = HttpProducer(http_service, keep_alive=False)
        found["http-keep-alive"] = HttpProducer(http_service, keep_alive=True)
    async with AsyncExitStack() as stack:
        for producer in found.values():
            await stack.enter_async_context(producer)
        yield found


async def load(
    lookupd: str,
    topic: str,
    rate: float,
    producers: int,
    seconds: float,
    config: Config,
    *,
    tcp_service: str = "",
    http_service: str = "",
) -> dict[str, Any]:
    """Run until SIGTERM or for *seconds*; return the last statistics."""
    loop = asyncio.get_running_loop()
    lookups = LookupWatch(lookupd, topic, producers)
    async with (
        producers_of(lookupd, tcp_service, http_service, config) as by_kind,
        asyncio.TaskGroup() as tasks,
    ):
        counted = CountedLoad(by_kind, topic, rate)
        for number in (signal.SIGTERM, signal.SIGINT):
            handle_signal(number, counted.stop)
        if seconds:
            loop.call_later(seconds, counted.stop)
        began = time.monotonic()

        def statistics() -> dict[str, Any]:
            asked = {
                "lookups": lookups.asked,
                "wrong_lookups": lookups.wrong,
                "unanswered_lookups": lookups.unanswered,
            }
            return {"seconds": round(time.monotonic() - began), **counted.statistics(), **asked}

        async with Consumer(
            topic,
            "counted",
            lambda message: counted.take(message.body),
            lookupd_addresses=[lookupd],
            config=replace(config, lookupd_poll_interval=1, max_in_flight=300),
        ):
            publishing = tasks.create_task(counted.run())
            # Lookups begin when the topic should be registered. Before, an answer without it is not wrong.
            await asyncio.sleep(3)
            asking = tasks.create_task(lookups.run(config))
            while not publishing.done():
                await asyncio.wait([publishing], timeout=1)
                _print_json(
                    {**statistics(), "slowest_in_last_second_ms": round(counted.take_slowest() * 1000)}
                )
            asking.cancel()
            await counted.all_received(_LAST_SECONDS)
    return statistics()


def _print_json(statistics: dict[str, Any]) -> None:
    write_message(json.dumps(statistics), sys.stdout)


def main() -> int:
    parser = ArgumentParser(prog="counted_load", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--lookupd-http-address", required=True, metavar="HOST:PORT", help="or a URL with https")
    add("--nsqd-tcp-address", default="", metavar="HOST:PORT", help="of a Service: publish through it too")
    add("--nsqd-http-address", default="", metavar="HOST:PORT", help="the same for plain HTTP")
    add("--topic", default="counted_load", help="the topic to publish to; it stays afterwards")
    add("--rate", type=float, default=300, help="publishes each second")
    add("--producers", type=int, default=1, help="how many nsqd a right lookup names at least")
    add("--seconds", type=float, default=0, help="how long; 0 means until SIGTERM")
    add_client_flags(parser)
    given = parser.parse_args()
    # The client's log lines (about a refused connection) would hide the statistics.
    logging.basicConfig(level=logging.CRITICAL, format="%(message)s")
    try:
        config = client_config(given)
    except SelfTestError as error:
        write_message(f"counted_load: {error}")
        return 2
    last = asyncio.run(
        load(
            given.lookupd_http_address,
            given.topic,
            given.rate,
            given.producers,
            given.seconds,
            config,
            tcp_service=given.nsqd_tcp_address,
            http_service=given.nsqd_http_address,
        )
    )
    _print_json({"final": True, **last})
    return int(bool(last["failed"] or last["missing"]))


if __name__ == "__main__":
    sys.exit(main())
