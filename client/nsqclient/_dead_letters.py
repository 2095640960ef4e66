"""Publishes a consumer's failed messages to a dead-letter topic."""

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any

from nsqclient._config import Config
from nsqclient._errors import UnsupportedError
from nsqclient._message import Message
from nsqclient._producer import Producer
from nsqclient._tasks import Tasks

log = logging.getLogger("nsqclient")


class DeadLetterProducers:
    """One producer for each nsqd, on a connection of its own.

    An nsqd ends the connection of a publish that it refuses. On the consumer's connection that would lose the
    messages in flight. They would use up their attempts without a handler.
    """

    def __init__(self, topic: str, config: Config) -> None:
        self.topic = topic
        self._config = replace(config, headers=True)
        self._producers: dict[str, Producer] = {}
        self._tasks = Tasks()
        self._warned = False

    def publish(self, message: Message[Any], reason: str) -> asyncio.Future[None]:
        """Publish the message to the nsqd it came from, with the headers of a dead letter.

        They are those that nsqd adds by a policy, so ``/dead_letters/send_back`` works for both.
        """
        log.warning(
            "%s/%s: %r goes to the dead letters in %s", message.topic, message.channel, message, self.topic
        )
        producer = self._producers.get(message.nsqd)
        if producer is None:
            producer = self._producers[message.nsqd] = Producer(message.nsqd, config=self._config)
        work = self._publish(producer, message, reason)
        return self._tasks.spawn(work, f"dead letter to {message.nsqd}", BaseException)

    async def _publish(self, producer: Producer, message: Message[Any], reason: str) -> None:
        added = {
            "dead-topic": message.topic,
            "dead-channel": message.channel,
            "dead-id": message.id.decode(errors="replace"),
            "dead-node": message.nsqd.rpartition(":")[0],
            "dead-attempts": str(message.attempts),
            "dead-first": str(message.timestamp_ns),
            "dead-last": str(time.time_ns()),
            "dead-client": f"{self._config.client_id}@{self._config.hostname}",
            "dead-reason": reason,
        }
        try:
            try:
                await producer.publish(self.topic, message.body, headers={**message.headers, **added})
            except ValueError:  # together they are too long
                await producer.publish(self.topic, message.body, headers=added)
        except UnsupportedError:
            if not self._warned:
                self._warned = True
                log.warning(
                    "%s/%s: the nsqd %s takes no headers, so its dead letters do not say where they came from"
                    " and cannot be sent back",
                    message.topic,
                    message.channel,
                    message.nsqd,
                )
            await producer.publish(self.topic, message.body)

    def disconnect(self, address: str) -> None:
        """Disconnect from an nsqd that sends no more messages, once it has answered."""
        if producer := self._producers.pop(address, None):
            self._tasks.spawn(producer.close(), f"leave {address}")

    async def close(self) -> None:
        """Give up the publishes that are not confirmed, and disconnect."""
        await self._tasks.end()
        await asyncio.gather(*(producer.close(drain_seconds=0) for producer in self._producers.values()))
        self._producers.clear()
