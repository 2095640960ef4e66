"""Passes messages from the publishing threads to the event loop that sends them."""

import asyncio
import threading
from collections import deque
from typing import Any

from nsqclient._errors import ClosedError
from nsqclient._producer import Producer
from nsqclient._requests import awaitable, copy_of
from nsqclient._threads import LoopThread, PublishOutcome


class Intake:
    """The messages that the event loop has not received from threads; bounded in messages and bytes."""

    def __init__(self, producer: Producer, thread: LoopThread) -> None:
        self._producer = producer
        self._thread = thread
        self._max_messages, self._max_bytes = producer._backlog.room  # as many as may be unconfirmed
        self._submitted: deque[tuple[str, bytes, PublishOutcome]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._blocked = 0  # threads that wait for room
        self._closed = False
        self._taking: asyncio.Task[None] | None = None
        self._is_awake = False  # _take() is scheduled on the loop
        self._is_bursty = False  # no caller waits for the message submitted last

    # --- in threads

    def put(
        self, topic: str, body: bytes, outcome: PublishOutcome, timeout: float | None, *, in_bursts: bool
    ) -> None:
        """Submit a message; blocks while there is no room, except on the event loop itself."""
        with self._lock:
            if self._closed:
                outcome.set_exception(ClosedError("the producer is closed"))
                return
            if self._is_full and not self._thread.is_current:
                self._wait_for_room(timeout)
            self._submitted.append((topic, body, outcome))
            self._bytes += len(body)
            self._is_bursty = in_bursts
            if not self._is_awake:
                self._is_awake = True
                self._thread.loop.call_soon_threadsafe(self._take)

    def close(self) -> None:
        """Take no more messages."""
        with self._lock:
            self._closed = True
            self._room.notify_all()

    @property
    def _is_full(self) -> bool:
        return len(self._submitted) >= self._max_messages or self._bytes >= self._max_bytes

    def _wait_for_room(self, timeout: float | None) -> None:
        self._blocked += 1
        try:
            if not self._room.wait_for(lambda: self._closed or not self._is_full, timeout):
                raise TimeoutError(f"no room for a message within {timeout:g} s")
        finally:
            self._blocked -= 1
        if self._closed:
            raise ClosedError("the producer is closed")

    # --- on the loop

    async def flush(self) -> None:
        """Wait until all submitted messages are confirmed, or have failed."""
        while self._submitted:
            last: asyncio.Future[Any] = awaitable(self._submitted[-1][2])
            await asyncio.wait([last])

    def end(self) -> None:
        """Fail the messages that the loop has not received."""
        if self._taking is not None:
            self._taking.cancel()
        self._fail(ClosedError("the producer was closed before this was sent"))

    def _take(self) -> None:
        """Pass on the submitted messages, as far as there is room, and check again in the next round.

        Otherwise a thread that submits message after message would wake the loop for each of them.
        """
        if self._taking is not None:
            return  # it waits for room
        offer, submitted = self._producer._offer, self._submitted
        taken = size = 0
        while submitted:
            topic, body, outcome = submitted[0]
            try:
                if not offer(topic, body, outcome):
                    self._taken(taken, size)
                    self._taking = asyncio.get_running_loop().create_task(self._take_when_room())
                    return
            except Exception as error:  # noqa: BLE001 - every error is for the submitter
                outcome.set_exception(error)
            submitted.popleft()
            taken += 1
            size += len(body)
        self._taken(taken, size)
        with self._lock:
            self._is_awake = (taken > 0 and self._is_bursty) or bool(submitted)
        if self._is_awake:
            self._thread.loop.call_soon(self._take)

    def _taken(self, count: int, size: int) -> None:
        with self._lock:
            self._bytes -= size
            if self._blocked and not self._is_full:
                self._room.notify(count)

    async def _take_when_room(self) -> None:
        try:
            await self._producer._wait_for_room(len(self._submitted[0][1]))
        except ClosedError as error:
            self._fail(error)
        finally:
            self._taking = None
        self._take()

    def _fail(self, error: Exception) -> None:
        """Fail all submitted messages."""
        while self._submitted:
            _, body, outcome = self._submitted.popleft()
            self._taken(1, len(body))
            outcome.set_exception(copy_of(error))
