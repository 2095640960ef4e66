"""Writes one topic: messages go to the file as they arrive, and are finished when it is synced."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from nsqclient import Consumer, Message
from nsqcore.process.logs import Log
from nsqtools.nsq_to_file.archive import Archive
from nsqtools.process import Failed
from nsqtools.supply import Supply

T = TypeVar("T")

# A message is held for at most this part of its time-out, however rarely files are to be synced, because nsqd
# would deliver it again after the time-out.
HELD_SHARE: Final = 0.5


class TopicLog:
    """The log, with the topic and channel in front of each line."""

    def __init__(self, log: Log, topic: str, channel: str) -> None:
        self._log = log
        self._name = f"[{topic}/{channel}] ".replace("%", "%%")

    def info(self, text: str, *values: object) -> None:
        self._log.info(self._name + text, *values)

    def warning(self, text: str, *values: object) -> None:
        self._log.warning(self._name + text, *values)


class TopicWriter:
    """Writes messages and holds them until they are synced; *most_held* is how many may be in flight."""

    def __init__(self, archive: Archive, sync_seconds: float, most_held: int, log: TopicLog) -> None:
        self._archive = archive
        self._sync_seconds = sync_seconds
        self._most_held = most_held
        self._log = log
        self._arrived: list[Message] = []
        self._held: list[Message] = []
        self._wake = asyncio.Event()
        self._hung_up = False
        self._ending = False
        self._last = False
        self._closed = asyncio.Event()

    def take(self, delivery: Message) -> None:
        """The handler of the consumer, for ``auto_answer=False``."""
        self._arrived.append(delivery)
        self._wake.set()

    def hang_up(self) -> None:
        """Sync, finish and close the file; the next message opens another one."""
        self._hung_up = True
        self._wake.set()

    async def run(self, consumer: Consumer) -> None:
        """Write until cancelled. An error of the disk is raised as Failed, with nothing finished after it."""
        try:
            await self._write(consumer)
        except OSError as error:
            raise Failed(f"[{consumer.topic}/{consumer.channel}] {error}") from error

    async def stop(self, consumer: Consumer) -> None:
        """Finish the messages received and those that still arrive; call it while :meth:`run` runs."""
        self._ending = True
        self._wake.set()
        await consumer.close()
        self._last = True
        self.hang_up()
        await self._closed.wait()

    async def _write(self, consumer: Consumer) -> None:
        loop = asyncio.get_running_loop()
        supply = Supply([consumer], self._most_held)
        tick_at = loop.time() + self._sync_seconds
        while True:
            await self._something(min(tick_at, self._due(consumer)))
            ticked = loop.time() >= tick_at
            opened = await self._add(supply)
            if ticked:
                tick_at += self._sync_seconds
                if not self._ending:
                    await self._blocking(supply, self._archive.rotate)
            if self._held and (
                opened
                or ticked
                or self._hung_up
                or self._ending
                or len(self._held) >= self._most_held
                or consumer.is_starved
                or loop.time() >= self._due(consumer)
            ):
                await self._sync(supply)
            if self._hung_up:
                # Cleared first: a later hang_up() is for messages that arrive while the file is being closed.
                self._hung_up, is_last = False, self._last
                await self._blocking(supply, self._archive.close)
                if is_last:
                    self._closed.set()
            if not self._held and not self._arrived:
                supply.resume()

    async def _blocking(self, supply: Supply, call: Callable[[], T]) -> T:
        """Do what may block for long, as a disk in trouble does."""
        in_hand = self._held or self._arrived
        oldest = in_hand[0].received_at if in_hand else asyncio.get_running_loop().time()
        return await supply.during(asyncio.to_thread(call), oldest)

    def _due(self, consumer: Consumer) -> float:
        """The time by which the oldest held message has to be finished, so that it does not time out."""
        if not self._held:
            return float("inf")
        return self._held[0].received_at + consumer.msg_timeout * HELD_SHARE

    async def _something(self, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _add(self, supply: Supply) -> bool:
        """Write the messages that arrived; returns whether a file was opened for them."""
        # A message whose connection is lost cannot be finished: it is delivered and written again later.
        arrived = [delivery for delivery in self._arrived if not delivery.is_lost]
        self._arrived = []
        if not arrived:
            return False
        self._held += arrived
        return await self._blocking(
            supply, lambda: self._archive.add([delivery.body for delivery in arrived])
        )

    async def _sync(self, supply: Supply) -> None:
        self._log.info("syncing %d records to disk", len(self._held))
        while not await self._blocking(supply, self._archive.sync):
            bodies = [delivery.body for delivery in self._held]
            self._log.warning("writing %d records again", len(bodies))
            await self._blocking(supply, partial(self._archive.add, bodies))
        for delivery in self._held:
            delivery.finish()
        self._held = []
