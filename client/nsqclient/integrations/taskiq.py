"""A broker for taskiq: tasks are messages of one topic, and the workers share a channel.

Needs ``pip install nsqclient[taskiq]``.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from nsqclient.config import DEFAULT_MAX_IN_FLIGHT, Config
from nsqclient.consumer import Consumer
from nsqclient.message import Message
from nsqclient.producer import Producer

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
        self._topic = topic
        self._producer = Producer(
            nsqd_addresses,
            lookupd_addresses=lookupd_addresses,
            config=config,
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

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yields tasks as they arrive."""
        async for message in self._consumer:
            yield AckableMessage(data=message.body, ack=partial(_finish, message))

    async def shutdown(self) -> None:
        """Requeue the tasks that were not begun, and wait until the published ones are confirmed."""
        await self._consumer.close(drain_seconds=0)
        await self._producer.close()
        await super().shutdown()


def _finish(message: Message[bytes]) -> None:
    if not message.answered:
        message.finish()
