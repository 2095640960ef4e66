"""A broker for taskiq: tasks are messages of one topic, and the workers share a channel.

Needs ``pip install nsqclient[taskiq]``.
"""

import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from taskiq import AckableMessage, AsyncBroker, BrokerMessage, TaskiqMessage, TaskiqMiddleware, TaskiqResult
from taskiq.exceptions import NoResultError

from nsqclient._config import DEFAULT_MAX_IN_FLIGHT, Config
from nsqclient._consumer import Consumer
from nsqclient._errors import UnsupportedError
from nsqclient._message import Message
from nsqclient._producer import Producer
from nsqclient._verdicts import reason_of

# How many tasks a worker takes ahead, unless max_in_flight says otherwise.
_TASKS_AHEAD: Final = 100


class NsqBroker(AsyncBroker):
    """``broker = NsqBroker("127.0.0.1:4150")``; the label ``delay`` (seconds) of a task defers it.

    A task is finished when taskiq acknowledges it; when its worker dies before that, another worker runs it
    again. While it runs its message is touched, so it may take longer than nsqd's message timeout.
    """

    def __init__(
        self,
        nsqd_addresses: Sequence[str] | str = (),
        *,
        lookupd_addresses: Sequence[str] | str = (),
        topic: str = "taskiq",
        channel: str = "workers",
        config: Config | None = None,
        publish_timeout: float | timedelta = 10,
    ) -> None:
        super().__init__()
        config = config or Config()
        if config.max_in_flight == DEFAULT_MAX_IN_FLIGHT:
            config = replace(config, max_in_flight=_TASKS_AHEAD)
        self._topic, self._channel = topic, channel
        self._producer = Producer(
            nsqd_addresses,
            lookupd_addresses=lookupd_addresses,
            config=replace(config, headers=True),  # for dead letters
            publish_timeout=publish_timeout,
        )
        self._consumer: Consumer[bytes] = Consumer(
            topic,
            channel,
            nsqd_addresses=nsqd_addresses,
            lookupd_addresses=lookupd_addresses,
            config=config,
            auto_touch=True,
        )

    async def kick(self, message: BrokerMessage) -> None:
        """Publish a task."""
        delay = float(message.labels.get("delay") or 0)
        if delay > 0:
            await self._producer.deferred_publish(self._topic, message.message, delay)
        else:
            await self._producer.publish(self._topic, message.message)

    async def publish_dead_letter(self, topic: str, message: TaskiqMessage, error: BaseException) -> None:
        """Publish a failed task to *topic*, from where nsqd can send it back to the workers."""
        body = self.formatter.dumps(message).message
        headers = {
            "dead-topic": self._topic,
            "dead-channel": self._channel,
            "dead-last": str(time.time_ns()),
            "dead-reason": reason_of(error),
        }
        try:
            await self._producer.publish(topic, body, headers=headers)
        except UnsupportedError:
            await self._producer.publish(topic, body)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yields tasks as they arrive."""
        async for message in self._consumer:
            yield AckableMessage(data=message.body, ack=partial(_finish, message))

    async def shutdown(self) -> None:
        """Requeue the tasks that were not begun, and wait until the published ones are confirmed."""
        await self._consumer.close(drain_seconds=0)
        await self._producer.close()
        await super().shutdown()


class DeadLetters(TaskiqMiddleware):
    """Publishes each task that failed for the last time to *topic*; the broker is an :class:`NsqBroker`.

    It is added before a middleware that retries, because taskiq calls them in reverse.
    """

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._dead_letter_topic = topic

    async def on_error(
        self, message: TaskiqMessage, result: TaskiqResult[Any], exception: BaseException
    ) -> None:
        """Publish the task, unless it is retried."""
        if not isinstance(result.error, NoResultError) and isinstance(self.broker, NsqBroker):
            await self.broker.publish_dead_letter(self._dead_letter_topic, message, exception)


def _finish(message: Message[bytes]) -> None:
    if not message.answered:
        message.finish()
