"""Prints messages in the order of their arrival, and finishes each when it is printed."""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable

from nsqclient import Message
from nsqtools.flow_control import FlowControl


class Printer:
    """Takes messages of all topics; after *total* of them (0: never) it is done and requeues the others.

    *flow* is limited to the messages still to be shown, before others are finished: nsqd need not send
    more, which would cost each of them an attempt.
    """

    def __init__(
        self,
        write: Callable[[bytes], Awaitable[None]],
        total: int,
        flow: FlowControl,
        *,
        print_topic: bool,
        print_headers: bool = False,
    ) -> None:
        self._write = write
        self._remaining = total if total > 0 else None
        self._flow = flow
        self._print_topic = print_topic
        self._print_headers = print_headers
        self._waiting: deque[tuple[bytes, Message]] = deque()
        self._arrived = asyncio.Event()
        self._done = False

    def handler(self, topic: str) -> Callable[[Message], None]:
        """The handler of one topic's consumer, for ``auto_answer=False``."""
        prefix = f"{topic} | ".encode() if self._print_topic else b""

        def take(delivery: Message) -> None:
            if self._done:
                delivery.requeue(0)
                return
            self._waiting.append((prefix, delivery))
            self._arrived.set()

        return take

    async def run(self) -> None:
        """Print until the last message to show is printed and finished."""
        while self._remaining is None or self._remaining > 0:
            await self._arrived.wait()
            batch = self._take()
            printing = self._write(b"".join(self._line(prefix, delivery) for prefix, delivery in batch))
            oldest = batch[0][1].received_at if batch else asyncio.get_running_loop().time()
            try:
                await self._flow.during(printing, oldest)
            except Exception:
                self._waiting.extendleft(reversed(batch))  # to be requeued with the others
                raise
            if self._remaining is not None:
                self._flow.limit(self._remaining)
            for _, delivery in batch:
                delivery.finish()
            if not self._waiting:
                self._flow.resume()

    def requeue_pending(self) -> None:
        """Requeue messages that wait or still arrive; call it after RDY 0."""
        self._done = True
        while self._waiting:
            self._waiting.popleft()[1].requeue(0)

    def _line(self, prefix: bytes, delivery: Message) -> bytes:
        if self._print_headers:
            prefix += json.dumps(dict(delivery.headers), ensure_ascii=False).encode() + b" | "
        return prefix + delivery.body + b"\n"

    def _take(self) -> list[tuple[bytes, Message]]:
        batch: list[tuple[bytes, Message]] = []
        while self._waiting and len(batch) != self._remaining:
            prefix, delivery = self._waiting.popleft()
            # A message whose connection is lost cannot be finished: it is delivered and printed again later.
            if not delivery.is_lost:
                batch.append((prefix, delivery))
        if self._remaining is not None:
            self._remaining -= len(batch)
        if not self._waiting:
            self._arrived.clear()
        return batch
