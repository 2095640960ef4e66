"""Publishes the messages that a consumer has given up to the topic of its dead letters."""

import asyncio
import logging
from typing import Any

from nsqclient.config import Config
from nsqclient.message import Message
from nsqclient.producer import Producer
from nsqclient.tasks import Tasks

log = logging.getLogger("nsqclient")


class DeadLetterProducers:
    """One producer for each nsqd, on a connection of its own.

    An nsqd ends the connection of a publish that it refuses. On that of the consumer the messages in flight
    would be lost, and would use up their attempts without being handled.
    """

    def __init__(self, topic: str, config: Config) -> None:
        self.topic = topic
        self._config = config
        self._producers: dict[str, Producer] = {}
        self._tasks = Tasks()

    def publish(self, message: Message[Any]) -> asyncio.Future[None]:
        """Publish the message, with its headers, to the nsqd it came from."""
        log.warning(
            "%s/%s: %r goes to the dead letters in %s", message.topic, message.channel, message, self.topic
        )
        producer = self._producers.get(message.nsqd)
        if producer is None:
            producer = self._producers[message.nsqd] = Producer(message.nsqd, config=self._config)
        work = producer.publish(self.topic, message.body, headers=message.headers or None)
        return self._tasks.spawn_quietly(work, f"dead letter to {message.nsqd}")

    def leave(self, address: str) -> None:
        """Disconnect from an nsqd from which no more messages come, once it has answered."""
        if producer := self._producers.pop(address, None):
            self._tasks.spawn(producer.close(), f"leave {address}")

    async def close(self) -> None:
        """Give up the publishes that are not confirmed, and disconnect."""
        await self._tasks.end()
        await asyncio.gather(*(producer.close(drain_seconds=0) for producer in self._producers.values()))
        self._producers.clear()
