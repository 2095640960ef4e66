"""A whole node without sockets on a simulated disk: broker, storage, turns, checkpoints and connections."""

import asyncio
import importlib
import json
import types
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from nsqcore.http.api import JSON_TYPE, ApiError
from nsqcore.process.logs import Log, LogLevel
from nsqd.engine.broker import Broker, Event
from nsqd.engine.limits import Limits
from nsqd.engine.sending_back import is_there
from nsqd.engine.settings import NOTHING, Settings, SettingsOf
from nsqd.log.cursor import Cursor
from nsqd.log.frames import Block
from nsqd.log.gaps import CannotRead
from nsqd.log.ids import MessageIds
from nsqd.server import clock
from nsqd.server.checkpointer import Checkpointer
from nsqd.server.fsync import Fsync
from nsqd.server.health import Health
from nsqd.server.http.dead_letters import DeadLettersApi
from nsqd.server.http.handling import HandlingApi
from nsqd.server.http.topics import TopicsApi
from nsqd.server.messages.finding import Finder
from nsqd.server.tcp import Clients
from nsqd.server.topology_events import TopologyEvents
from nsqd.server.watermark import Watermark
from nsqd.server.write_batch import WriteBatch
from nsqd.storage import metadata
from nsqd.storage.data_path import DataPath, StorageOptions
from nsqd.storage.topic_log import TopicLog, store_of
from tests.campaign.client import Client
from tests.campaign.headed import body_in
from tests.support.simulated_disk import SimulatedDisk
from tests.support.simulated_loop import SECOND, SimulatedLoop
from tests.support.unreplicated import unreplicated

DATA: Final = Path("/data")
SEGMENT_BYTES: Final = 3000
CHAIN_BYTES: Final = 1000
MSG_TIMEOUT_NS: Final = 4 * SECOND
SYNC_EVERY: Final = 7
SYNC_TIMEOUT_S: Final = 2.0
# How long a stop waits for requests to be answered.
_ANSWERED_S: Final = 3.0
NODE_ID: Final = 7
# The topic whose finished messages are kept for a while.
KEEPS: Final = "events"
RETAIN_NS: Final = 15 * SECOND
_RETAINED: Final = Settings(retain_time_ns=RETAIN_NS)
QUIET: Final = Log("[campaign] ", LogLevel.FATAL)


class NoLookups:
    """Stands in for nsqlookupd connections: there is none."""

    def register(self, topic: str, channel: str = "") -> None: ...

    def unregister(self, topic: str, channel: str = "") -> None: ...

    def peers(self) -> list[Any]:
        return []


class SmallStores(DataPath):
    """A data path that compacts segments and rewrites checkpoints even if they are small."""

    def make_store(self, topic_name: str) -> TopicLog | None:
        store = super().create_log(topic_name)
        if store is not None:
            store.checkpoints.chain_bytes = CHAIN_BYTES
        return store


def settings_of(topic_name: str, channel_name: str) -> Settings:
    return _RETAINED if topic_name == KEEPS and not channel_name else NOTHING


class Storage:
    """A node's storage, and the broker that is restored from it."""

    def __init__(
        self,
        disk: SimulatedDisk,
        warnings: list[str] | None = None,
        settings_of: SettingsOf = settings_of,
    ) -> None:
        self.warnings = [] if warnings is None else warnings
        options = StorageOptions(SEGMENT_BYTES)
        self.data = SmallStores(DATA, options, self.warnings.append, disk, node_id=NODE_ID)
        limits = Limits(mem_queue_size=0, msg_timeout_ns=MSG_TIMEOUT_NS)
        self.broker = Broker(MessageIds(NODE_ID), limits, self.data.make_store)
        self.broker.apply(settings_of)

    def load(self) -> None:
        """Load the data path, as the daemon does at its start."""
        clock.follow_clock(self.broker.wall)
        self.data.restore(
            self.broker, metadata.load(self.data.disk, DATA, self.warnings.append), clock.now_ns()
        )
        self.broker.events.clear()


class Node:
    """A node. It starts and stops in the same order as `nsqd.server.daemon`."""

    def __init__(
        self,
        disk: SimulatedDisk,
        loop: SimulatedLoop,
        *,
        strict: bool,
        settings_of: SettingsOf = settings_of,
        watermark: str = "",
    ) -> None:
        # As in a new process, the engine's clock starts from the wall clock.
        importlib.reload(clock)
        self.loop = loop
        self.disk = disk
        # Called with the positions before and after a sync of everything, or if calls failed since then.
        self.on_synced: Callable[[int, int], None] = lambda _began, _ended: None
        self.on_sync_failed: Callable[[], None] = lambda: None
        # Called when a channel was just set to a position in the log, or created there.
        self.on_placed: Callable[[str, str], None] = lambda _topic, _channel: None
        storage = Storage(disk, settings_of=settings_of)
        self._storage = storage
        self.broker, self.data = storage.broker, storage.data
        self.health = Health()
        self.fsync = Fsync(
            self.data,
            self.health,
            QUIET,
            sync_every=1 if strict else SYNC_EVERY,
            threads=ThreadPoolExecutor(),
        )
        replication = unreplicated(self.broker, self.data, self.fsync, QUIET)
        self.write_batch = WriteBatch(
            self.broker,
            self.data,
            self.health,
            QUIET,
            self.fsync,
            replication,
            node="node",
            on_event=self._on_event,
        )
        self.clients = Clients(self.broker, self.write_batch, QUIET, None, None, replication.accept)
        self.checkpoints = Checkpointer(self.broker, self.data, self.health, QUIET, replication.checkpointed)
        self.changes = TopologyEvents(
            self.broker,
            self.data,
            NoLookups(),
            self.checkpoints,
            self.health,
            QUIET,
            ask_turn=self.write_batch.request_turn,
            percentiles=(),
            window_ns=0,
        )
        self.topics = TopicsApi(
            self.broker,
            self.data,
            self.write_batch,
            self.fsync,
            self.changes,
            self.checkpoints,
            QUIET,
            placed=lambda topic, channel: self.on_placed(topic.name, channel.name),
        )
        finder = Finder(disk, ThreadPoolExecutor())
        self.handling = HandlingApi(self.broker, finder, self.write_batch, QUIET)
        self.letters = DeadLettersApi(self.broker, finder, self.write_batch, QUIET)
        # Without a watermark the free space is not watched.
        self.watermark = (
            Watermark(watermark, self.broker, disk, DATA, self.health, QUIET) if watermark else None
        )
        self._tasks: list[asyncio.Task[None]] = []
        # Unanswered requests.
        self._requests: set[asyncio.Task[None]] = set()

    @property
    def warnings(self) -> list[str]:
        return self._storage.warnings

    async def start(self) -> None:
        """Load the data path and begin to work. Raises the error that would end the daemon."""
        self._storage.load()
        self.write_batch.request_turn()
        await self.changes.start()
        self._tasks = [
            self.loop.create_task(self.checkpoints.run()),
            self.loop.create_task(self._sync_in_time()),
        ]
        if self.watermark is not None:
            self._tasks.append(self.loop.create_task(self.watermark.watch()))

    async def stop(self) -> None:
        """Stop cleanly."""
        await self._end_tasks()
        self.write_batch.run()
        await self.fsync.synced()
        self.clients.close_all()
        if self._requests:
            await asyncio.wait(self._requests, timeout=_ANSWERED_S)
        self.write_batch.run()
        await self.changes.finish()
        await self.fsync.synced()
        self.write_batch.close()
        self.fsync.close()
        await self.checkpoints.write_last()
        for topic in self.broker.topics.values():
            store = store_of(topic)
            if store is not None:
                store.appender.close()

    def ended(self) -> BaseException | None:
        """Return the error of a task that ended before the stop; it would stop the daemon."""
        return next((task.exception() for task in self._tasks if task.done() and not task.cancelled()), None)

    async def abandon(self) -> None:
        """Release everything, as the end of a process that could not start does."""
        await self._end_tasks()
        self.write_batch.close()
        self.fsync.close()
        self.disk.forget_descriptors()

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    def used_sequences(self) -> int:
        """Return the end of the sequences given to messages; a topic without messages has used none."""
        topics = self.broker.topics.values()
        return max((topic.sequence_end for topic in topics if topic.message_count), default=0)

    def pending_bodies(self, topic_name: str, channel_name: str, *, stored: bool) -> set[bytes]:
        """Return the readable pending and deferred bodies of a channel; with *stored*, those on the disk."""
        topic = self.broker.topics[topic_name]
        source = topic.store.segments if stored and topic.store else topic.log
        bodies = set()
        backlog = topic.channels[channel_name].backlog
        deferred = ((start, end) for _, start, end in backlog.deferred.runs())
        for start, end in (*backlog.pending.ranges(), *deferred):
            for seq in range(start, end):
                with suppress(CannotRead):
                    block = source.read(seq)
                    if isinstance(block, Block):
                        bodies.add(body_in(block, seq))
        return bodies

    def backlog_of(self, topic_name: str, channel_name: str, *, stored: bool = False) -> dict[bytes, int]:
        """Return the readable pending bodies, and sequences; with *stored*, those on the disk."""
        topic = self.broker.topics[topic_name]
        source = topic.store.segments if stored and topic.store else topic.log
        found = {}
        for start, end in topic.channels[channel_name].backlog.unfinished(0, topic.log.next_seq):
            seq = start
            while seq < end:
                try:
                    block = source.read(seq, end)
                except CannotRead:
                    seq += 1
                    continue
                if block is None:
                    break
                if isinstance(block, Block):
                    found[body_in(block, seq)] = seq
                    seq += 1
                else:
                    # Skip the whole gap, because a restart skips many numbers.
                    seq = block.end
        return found

    def bodies_from(self, topic_name: str, seq: int) -> dict[int, bytes]:
        """Return the readable bodies of the log from *seq* on, by sequence."""
        topic = self.broker.topics.get(topic_name)
        found: dict[int, bytes] = {}
        if topic is not None:
            with suppress(CannotRead):
                for start, stop, block in Cursor(topic.log).scan(max(seq, topic.log.log_start)):
                    if isinstance(block, Block):
                        found |= {one: body_in(block, one) for one in range(start, stop)}
        return found

    def waiting_letters(self, topic_name: str) -> dict[int, bytes]:
        """Return the readable dead letters that were not sent back, by sequence."""
        topic = self.broker.topics.get(topic_name)
        letters = self.bodies_from(topic_name, 0)
        return {seq: body for seq, body in letters.items() if topic is not None and is_there(topic, seq)}

    def is_pending(self, topic_name: str, channel_name: str, seq: int) -> bool:
        channel = self.broker.topics[topic_name].channels[channel_name]
        return seq < channel.backlog.end and seq not in channel.backlog.finished

    def is_alive(self, topic_name: str, channel_name: str, seq: int) -> bool:
        """Say whether the message is pending in the channel and not about to become a dead letter."""
        dead_letter_queue = (
            self.broker.topics[topic_name].channels[channel_name].backlog.dead_letter_queue.ranges()
        )
        return self.is_pending(topic_name, channel_name, seq) and not any(
            start <= seq < end for start, end in dead_letter_queue
        )

    def is_deferred(self, topic_name: str, channel_name: str, seq: int) -> bool:
        channel = self.broker.topics[topic_name].channels[channel_name]
        return any(start <= seq < end for _, start, end in channel.backlog.deferred.runs())

    def id_of(self, seq: int) -> str:
        return self.broker.ids.encode(seq).decode()

    def connect(self) -> Client:
        return Client(self.loop, self.clients)

    def request(
        self,
        path: str,
        arguments: dict[str, str],
        answered: Callable[[bool], None],
        told: Callable[[Any], None] = lambda _answer: None,
    ) -> asyncio.Task[None]:
        """Run a request immediately up to its first wait; call *answered* with whether it worked.

        Then *told* is called with the answer, if it is JSON.
        """
        kind, verb = path.split("/")
        apis = {"message": self.handling, "dead_letters": self.letters}
        handler = getattr(apis[kind], verb) if kind in apis else getattr(self.topics, f"{verb}_{kind}")

        async def ask(rest: Coroutine[Any, Any, Any]) -> None:
            try:
                answer = await rest
            except ApiError:
                answered(False)
            else:
                answered(True)
                if JSON_TYPE.startswith(answer.content_type):
                    told(json.loads(answer.body))

        task = self.loop.create_task(ask(_begin(handler(_Request(arguments)))))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        return task

    def _on_event(self, event: Event) -> None:
        self.changes.handle(event)

    async def _sync_in_time(self) -> None:
        failed = self.disk.failed
        while True:
            await asyncio.sleep(SYNC_TIMEOUT_S)
            began = len(self.disk.steps)
            await self.fsync.synced()
            if self.disk.failed == failed:
                self.on_synced(began, len(self.disk.steps))
            else:
                self.on_sync_failed()
            failed = self.disk.failed


class _Request:
    """The part of a request that the handlers use."""

    def __init__(self, arguments: dict[str, str]) -> None:
        self.query = arguments

    def require(self, name: str) -> str:
        return self.query[name]


def _begin(coroutine: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
    """Run a coroutine to its first wait; return a coroutine that continues from there."""
    try:
        waited = coroutine.send(None)
    except StopIteration as stop:
        return _done(stop.value)
    except Exception as error:  # noqa: BLE001 - raised again when the rest is awaited
        return _failed(error)
    return _go_on(coroutine, waited)


async def _done(answer: Any) -> Any:
    return answer


async def _failed(error: Exception) -> None:
    raise error


async def _go_on(coroutine: Coroutine[Any, Any, Any], waited: Any) -> Any:
    return await _rest(coroutine, waited)


@types.coroutine
def _rest(coroutine: Coroutine[Any, Any, Any], waited: Any) -> Generator[Any, Any, Any]:
    while True:
        try:
            sent = yield waited
        except BaseException as error:  # noqa: BLE001 - the coroutine handles it
            step: Callable[[], Any] = lambda error=error: coroutine.throw(error)  # noqa: E731
        else:
            step = lambda sent=sent: coroutine.send(sent)  # noqa: E731
        try:
            waited = step()
        except StopIteration as stop:
            return stop.value
