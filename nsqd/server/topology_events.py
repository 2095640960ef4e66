"""The effects of creating or deleting a topic or channel: log, nsqlookupd, metadata, files."""

import asyncio
from collections.abc import Callable
from typing import Final

from nsqclient.wire.names import is_ephemeral
from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker, Change, Event
from nsqd.engine.channel import Channel
from nsqd.engine.latency import Latency
from nsqd.engine.topic import Topic
from nsqd.log.disk import error_text
from nsqd.server.checkpointer import Checkpointer
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.health import Health
from nsqd.server.lookup.peer import LookupPeers
from nsqd.storage import metadata
from nsqd.storage.data_path import DataPath
from nsqd.storage.metadata import TopicMetadata
from nsqd.storage.topic_log import store_of

# nsqd.dat is written so long after a change, and no more often than that.
PERSIST_AFTER_S: Final = 1.0


class TopologyEvents:
    """Carries out the consequences of the broker's events, in the order of the events."""

    def __init__(
        self,
        broker: Broker,
        data: DataPath,
        lookups: LookupPeers,
        checkpoints: Checkpointer,
        health: Health,
        log: Log,
        *,
        ask_turn: Callable[[], None],
        percentiles: tuple[float, ...],
        window_ns: int,
        persist_after_s: float = PERSIST_AFTER_S,
    ) -> None:
        self._broker = broker
        self._data = data
        self._lookups = lookups
        self._checkpoints = checkpoints
        self._health = health
        self._log = log
        self._ask_turn = ask_turn
        self._percentiles = percentiles
        self._window_ns = window_ns
        self._persist_after_s = persist_after_s
        self._writing: asyncio.Task[None] | None = None
        self._dirty = False
        self._asking: dict[Topic, asyncio.Task[None]] = {}

    def handle(self, event: Event) -> None:
        """Handle one event of the broker."""
        topic, channel = event.topic, event.channel
        if channel is None:
            if event.change is Change.TOPIC_CREATED:
                self._topic_created(topic)
            else:
                self._topic_deleted(topic)
        elif event.change is Change.CHANNEL_CREATED:
            self._log.info("TOPIC(%s): new channel(%s)", topic.name, channel.name)
            self.measure(channel)
            self._lookups.register(topic.name, channel.name)
        else:
            self._log.info("TOPIC(%s): deleting channel %s", topic.name, channel.name)
            self._lookups.unregister(topic.name, channel.name)
        if not is_ephemeral(topic.name) and not (channel and channel.ephemeral):
            self.persist_soon()

    def measure(self, channel: Channel) -> None:
        """Begin to measure a channel's end-to-end latency, if that is enabled."""
        if self._percentiles:
            channel.latency = Latency(self._percentiles, self._window_ns, clock_ns())
            for sibling in channel.siblings:
                sibling.latency = channel.latency

    def persist_soon(self) -> None:
        """Write nsqd.dat soon, once for all changes until then; no caller waits for it."""
        self._dirty = True
        if self._writing is None:
            self._writing = asyncio.create_task(self._persist(self._persist_after_s), name="metadata")

    async def flowing(self, topic: Topic) -> bool:
        """Wait until a new topic has the channels that nsqlookupd knows, and its messages go to them.

        Returns whether it had to wait; if so, other tasks ran during that.
        """
        asking = self._asking.get(topic)
        if asking is None:
            return False
        await asyncio.wait([asking])
        return True

    async def finish(self) -> None:
        """End the questions and writes under way, and write the metadata a last time."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        await self.persist()

    async def start(self) -> None:
        """Write nsqd.dat before any client is served; a write that fails is repeated until it succeeds."""
        await self.persist()
        if self._dirty:
            self.persist_soon()

    async def persist(self) -> None:
        """Write nsqd.dat now."""
        self._dirty = True
        await self._persist(0.0)

    def metadata(self) -> list[TopicMetadata]:
        """The topics and channels that are not ephemeral, sorted by name."""
        return [
            TopicMetadata(
                topic.name,
                topic.paused,
                [(c.name, c.paused) for _, c in sorted(topic.channels.items()) if not c.ephemeral],
                store.appender.log_id if (store := store_of(topic)) else 0,
            )
            for _, topic in sorted(self._broker.topics.items())
            if not topic.ephemeral
        ]

    async def _persist(self, after_s: float) -> None:
        path = self._data.path / metadata.FILE_NAME
        identity = self._data.reservation.identity.hex()
        try:
            await asyncio.sleep(after_s)
            while self._dirty:
                self._dirty = False
                self._log.info("NSQ: persisting topic/channel metadata to %s", path)
                try:
                    await self._save(identity)
                except OSError as error:
                    self._health.failed("metadata", error_text(error))
                    self._log.error("failed to persist metadata - %s", error)
                    self._dirty = True
                    if not after_s:
                        return
                else:
                    self._health.worked("metadata")
                await asyncio.sleep(after_s)
        finally:
            self._writing = None

    async def _save(self, identity: str) -> None:
        """Write the file in a thread and wait for it, even when cancelled: two would rename the same file."""
        job = asyncio.create_task(
            asyncio.to_thread(metadata.save, self._data.disk, self._data.path, self.metadata(), identity)
        )
        try:
            await asyncio.shield(job)
        except asyncio.CancelledError:
            # The caller that cancelled it writes once more, and reports if that fails.
            await asyncio.gather(job, return_exceptions=True)
            raise

    def _topic_created(self, topic: Topic) -> None:
        self._log.info("TOPIC(%s): created", topic.name)
        self._lookups.register(topic.name)
        peers = self._lookups.peers()
        if any(peer.connected for peer in peers):
            # Its messages wait until the channels that it has on other nodes are created here.
            self._broker.set_awaiting_registration(topic, awaiting_registration=True)
            task = asyncio.create_task(self._create_known_channels(topic), name=f"channels of {topic.name}")
            self._asking[topic] = task
            task.add_done_callback(lambda _: self._asking.pop(topic))
        elif peers:
            # The topic's channels on other nodes miss messages that are published before they exist here.
            self._log.error(
                "no available nsqlookupd to query for channels to pre-create for topic %s", topic.name
            )

    async def _create_known_channels(self, topic: Topic) -> None:
        try:
            for name in await self._lookups.channels_of(topic.name):
                if not (topic.deleted or self._broker.decommissioning):
                    self._broker.channel(topic, name)
        finally:
            if not topic.deleted:
                self._broker.set_awaiting_registration(topic, awaiting_registration=False)
            self._ask_turn()

    def _topic_deleted(self, topic: Topic) -> None:
        self._log.info("TOPIC(%s): deleting", topic.name)
        self._lookups.unregister(topic.name)
        self._release_memory(topic)
        if not topic.ephemeral:
            self._health.forget(topic.name)
            self._checkpoints.remove_deleted()

    def _release_memory(self, topic: Topic) -> None:
        """Free a deleted topic's memory a little at a time, because many blocks take long."""
        if topic.trim():
            asyncio.get_running_loop().call_soon(self._release_memory, topic)
