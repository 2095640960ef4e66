"""Sample traffic: a shop that publishes to both nsqd, and two applications that read its messages."""

import asyncio
import itertools
import json
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from devcluster.layout import ClusterLayout
from devcluster.ledger import Ledger
from nsqclient._config import Config
from nsqclient._consumer import Consumer
from nsqclient._message import Message
from nsqclient._producer import Producer
from nsqclient.wire.errors import ProtocolError
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.nsqd_api import NsqdApi

log = logging.getLogger("nsqclient")

# topic -> share of the messages
TOPICS: Final = {"orders": 6, "payments": 3, "shipments": 1}
CHANNELS: Final = ("billing", "analytics")

TICK_SECONDS: Final = 0.1
REMINDER_SHARE: Final = 0.02  # this share of the orders is sent again as a deferred reminder
REMINDER_SECONDS: Final = 5.0
RETRY_SHARE: Final = 0.01  # billing delays this share of its messages once, as a real application would do
RETRY_SECONDS: Final = 2.0
LOOKUP_SECONDS: Final = 5.0

_CITIES: Final = ("Berlin", "Lisbon", "Nairobi", "Osaka", "Quito", "Toronto")


@dataclass(slots=True)
class Counts:
    """How many messages were published, failed, and handled since the start."""

    published: int = 0
    failed: int = 0
    handled: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CHANNELS, 0))

    def __str__(self) -> str:
        handled = "   ".join(f"{channel} {count:,}" for channel, count in self.handled.items())
        failed = f"   failed {self.failed:,}" if self.failed else ""
        return f"published {self.published:,}   {handled}{failed}"


class Traffic:
    """Publishes ``rate`` messages a second and reads every topic on every channel."""

    def __init__(self, layout: ClusterLayout, rate: float) -> None:
        self.counts = Counts()
        self._rate = rate
        # Pending messages of earlier runs are read, but are not in this run's ledger.
        self._run = uuid4().hex[:6]
        self._number = 0
        self._ledger = Ledger(CHANNELS)
        addresses = [nsqd.address("tcp") for nsqd in layout.nsqds]
        self._nsqd_http_addresses = [nsqd.address("http") for nsqd in layout.nsqds]
        # Each producer starts with another nsqd, so that every nsqd has messages of every topic.
        self._producers = [
            Producer([*addresses[at:], *addresses[:at]], config=_config("shop"), retry_seconds=30)
            for at in range(len(addresses))
        ]
        self._consumers = [
            Consumer(
                topic,
                channel,
                self._handler(channel),
                lookupd_addresses=[layout.lookupd.address("http")],
                config=_config(channel),
            )
            for channel in CHANNELS
            for topic in TOPICS
        ]

    async def start(self, http: ClusterHttp) -> None:
        """Create the topics and channels and begin to read them."""
        # A channel that is created after the first message would miss it, so all are created before.
        for address in self._nsqd_http_addresses:
            nsqd = NsqdApi(http, address)
            for topic in TOPICS:
                await nsqd.create_topic(topic)
                for channel in CHANNELS:
                    await nsqd.create_channel(topic, channel)
        for consumer in self._consumers:
            await consumer.start()

    def statistics(self) -> str:
        """Return the statistics for a line of the terminal."""
        oldest = self._ledger.oldest_seconds(asyncio.get_running_loop().time())
        twice = f"   read twice {self._ledger.redelivered:,}" if self._ledger.redelivered else ""
        return f"{self.counts}   unread {self._ledger.unread():,}, the oldest {max(oldest, 0):.1f} s{twice}"

    async def close(self) -> None:
        """Let the readers finish their messages, then close all connections."""
        await asyncio.gather(*(consumer.close(drain_seconds=5) for consumer in self._consumers))
        for producer in self._producers:
            await producer.close()

    async def run(self) -> None:
        """Publish until cancelled."""
        loop = asyncio.get_running_loop()
        due = 0.0
        topics, shares = list(TOPICS), list(TOPICS.values())
        at = loop.time()
        while True:
            due += self._rate * TICK_SECONDS
            chosen = random.choices(topics, shares, k=int(due))
            due -= len(chosen)
            producers = itertools.cycle(self._producers)
            await asyncio.gather(*map(self._publish, producers, chosen))
            at += TICK_SECONDS
            await asyncio.sleep(max(0, at - loop.time()))

    async def _publish(self, producer: Producer, topic: str) -> None:
        await self._send(producer, topic, 0)
        if topic == "orders" and random.random() < REMINDER_SHARE:
            await self._send(producer, topic, REMINDER_SECONDS)

    async def _send(self, producer: Producer, topic: str, delay: float) -> None:
        self._number += 1
        name = f"{self._run}-{self._number}"
        body = json.dumps(sample_message(topic, name)).encode()
        self._ledger.sending(name, asyncio.get_running_loop().time() + delay)
        try:
            await (producer.deferred_publish(topic, body, delay) if delay else producer.publish(topic, body))
            self.counts.published += 1
        except (OSError, ProtocolError) as error:
            log.warning("not published to %s: %s", topic, error)
            self._ledger.not_published(name)
            self.counts.failed += 1

    def _handler(self, channel: str) -> Callable[[Message], None]:
        def handle(delivery: Message) -> None:
            name = json.loads(delivery.body)["id"]
            if channel == "billing" and delivery.attempts == 1 and random.random() < RETRY_SHARE:
                delivery.requeue(RETRY_SECONDS)
            else:
                self.counts.handled[channel] += 1
                if str(name).startswith(self._run):
                    self._ledger.read(channel, name)

        return handle


def sample_message(topic: str, name: str) -> dict[str, Any]:
    """Make a message of the shop; the Spark recipes in pipelines/cookbook read these members."""
    message: dict[str, Any] = {"id": name, "event": topic.removesuffix("s"), "city": random.choice(_CITIES)}
    number = int(name.rpartition("-")[2])
    money = round(random.lognormvariate(3.5, 0.8), 2)
    match topic:
        case "orders":
            message |= {"order": number, "customer": random.randint(1, 50), "price": money, "currency": "EUR"}
        case "payments":
            # Most of these numbers belong to orders.
            message |= {"order": max(1, number - random.randint(1, 50)), "paid": money, "currency": "EUR"}
        case _:
            message["parcels"] = random.randint(1, 4)
    return message


def _config(application: str) -> Config:
    # Discovers an nsqd that was restarted by hand within seconds, not within a minute.
    return Config(
        client_id=application,
        user_agent=f"{application}/1.0",
        lookupd_poll_interval=LOOKUP_SECONDS,
        max_in_flight=50,
    )
