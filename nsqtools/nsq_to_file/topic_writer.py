"""Writes one topic: messages go to the file as they arrive, and are finished when it is synced."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from nsqclient import Consumer, Message
from nsqtools.flow_control import FlowControl
from nsqtools.nsq_to_file.archive import Archive, TopicLog
from nsqtools.process import Failed

T = TypeVar("T")

# A message stays unfinished for at most this share of its timeout, whatever the sync interval is. After the
# timeout nsqd would deliver it again.
SYNC_SHARE: Final = 0.5


class TopicWriter:
    """Writes messages, and finishes them when they are synced; *max_in_flight* limits those in flight."""

    def __init__(self, archive: Archive, sync_seconds: float, max_in_flight: int, log: TopicLog) -> None:
        self._archive = archive
        self._sync_seconds = sync_seconds
        self._max_in_flight = max_in_flight
        self._log = log
        self._arrived: list[Message] = []
        self._unsynced: list[Message] = []
        self._wake = asyncio.Event()
        self._hung_up = False
        self._ending = False
        self._last = False
        self._closed = asyncio.Event()

    def handle(self, delivery: Message) -> None:
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
        flow = FlowControl([consumer], self._max_in_flight)
        tick_at = loop.time() + self._sync_seconds
        while True:
            await self._wait(min(tick_at, self._due(consumer)))
            ticked = loop.time() >= tick_at
            cluster_http = await self._add(flow)
            if ticked:
                tick_at += self._sync_seconds
                if not self._ending:
                    await self._blocking(flow, self._archive.rotate)
            if self._unsynced and (
                cluster_http
                or ticked
                or self._hung_up
                or self._ending
                or len(self._unsynced) >= self._max_in_flight
                or consumer.is_starved
                or loop.time() >= self._due(consumer)
            ):
                await self._sync(flow)
            if self._hung_up:
                # Cleared first: a later hang_up() is for messages that arrive while the file is being closed.
                self._hung_up, is_last = False, self._last
                await self._blocking(flow, self._archive.close)
                if is_last:
                    self._closed.set()
            if not self._unsynced and not self._arrived:
                flow.resume()

    async def _blocking(self, flow: FlowControl, call: Callable[[], T]) -> T:
        """Run a call that may block for long, for example on a failing disk."""
        in_hand = self._unsynced or self._arrived
        oldest = in_hand[0].received_at if in_hand else asyncio.get_running_loop().time()
        return await flow.during(asyncio.to_thread(call), oldest)

    def _due(self, consumer: Consumer) -> float:
        """The deadline to finish the oldest unfinished message, so that it does not time out."""
        if not self._unsynced:
            return float("inf")
        return self._unsynced[0].received_at + consumer.msg_timeout * SYNC_SHARE

    async def _wait(self, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _add(self, flow: FlowControl) -> bool:
        """Write the messages that arrived; returns whether a file was opened for them."""
        # A message whose connection is lost cannot be finished: it is delivered and written again later.
        arrived = [delivery for delivery in self._arrived if not delivery.is_lost]
        self._arrived = []
        if not arrived:
            return False
        self._unsynced += arrived
        return await self._blocking(flow, lambda: self._archive.add([delivery.body for delivery in arrived]))

    async def _sync(self, flow: FlowControl) -> None:
        self._log.info("syncing %d records to disk", len(self._unsynced))
        while not await self._blocking(flow, self._archive.sync):
            bodies = [delivery.body for delivery in self._unsynced]
            self._log.warning("writing %d records again", len(bodies))
            await self._blocking(flow, partial(self._archive.add, bodies))
        for delivery in self._unsynced:
            delivery.finish()
        self._unsynced = []
