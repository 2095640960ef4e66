"""One write batch of the event loop: it stores published messages, then answers, then delivers.

Connections and HTTP handlers apply commands as they are read and request a batch. The loop runs it once,
after it has read from all sockets. So all publishers of a round share one write per topic, and consumers are
woken once.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeAlias

from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker, Event
from nsqd.engine.channel import Channel
from nsqd.engine.topic import Topic
from nsqd.server.busy_poll import BusyPoll
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.commit import Commit, Failures
from nsqd.server.dead_letters import DeadLetterMover
from nsqd.server.deadlines import Deadlines
from nsqd.server.delivery import serve
from nsqd.server.fsync import Callback, Fsync
from nsqd.server.health import Health, reading_of
from nsqd.server.replication.service import Replication
from nsqd.storage.data_path import DataPath
from nsqd.storage.topic_log import store_of

# With at most so many publishers an fsync in the loop serves them sooner than one in a thread.
FEW_PUBLISHERS: Final = 8
# Stands for the replies of a client that sends ahead.
PIPELINED: Final = 1000

_NONE: Final = Failures()

# Called for each wait of a topic, with "" when it is over, or with the reason why the topic is not stored.
OnDurable: TypeAlias = Callable[[Topic, str], None]
# Registers a callback for a replica or an fsync.
Wait: TypeAlias = Callable[[Callback], None]


class NotStored(Exception):
    """A publish could not be stored; the text is the reason."""


class Answerer(Protocol):
    """A connection with replies to send."""

    def not_stored(self, topic: Topic, reason: str) -> None: ...

    def answer(self) -> None: ...

    def published(self) -> list[Topic]:
        """The topics that its replies answer publishes to."""

    def pending(self) -> int:
        """How many replies it has."""

    def defer_replies(self, waiting: int) -> OnDurable | None:
        """Hold the replies until *waiting* calls of the result; None when they wait for nothing."""


class WriteBatch:
    """Stores, answers and delivers; see the module."""

    def __init__(
        self,
        broker: Broker,
        data: DataPath,
        health: Health,
        log: Log,
        fsync: Fsync,
        replication: Replication,
        *,
        node: str,
        busy_poll_ns: int = 0,
        on_event: Callable[[Event], None],
    ) -> None:
        """*on_event* is called for each topic and channel that was created or deleted.

        *node* is the name of this nsqd in dead letters.
        *busy_poll_ns* is how long to poll for the next request after an answer; see `busy_poll`.
        """
        self._broker = broker
        self._health = health
        self._log = log
        self._fsync = fsync
        self._commit = Commit(broker, data, health, log, fsync, replication)
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self.dead_letter_mover = DeadLetterMover(broker, self, log, node)
        self._replication = replication
        self._scheduled = False
        # Whether something came since the last turn.
        self._wanted = False
        self._hurried = False
        self._closed = False
        # Whether this turn answers a client that waits for the answer.
        self._awaited = False
        # A reply that waits for an fsync comes too late for busy polling.
        self._busy_poll = BusyPoll(0 if fsync.strict else busy_poll_ns, self._loop.call_soon, clock_ns)
        self._answering: dict[Answerer, None] = {}
        # Callbacks that wait until a topic's messages are stored; True: until they are durable, in any mode.
        self._publishes: list[tuple[Topic, Callback, bool]] = []
        # The same for a topic's notes.
        self._notes: list[tuple[Topic, Callback, bool]] = []
        # Topics with messages that cannot be read, and the reasons last logged.
        self._unreadable: dict[str, str] = {}
        self._deadlines = Deadlines(broker, self.request_turn)

    # --- asking for a turn ---

    def request_turn(self) -> None:
        self._wanted = True
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.run)

    def request_turn_for(self, connection: Answerer, waits_since_ns: int = 0) -> None:
        """Request a batch that answers *connection*, whose client has waited since *waits_since_ns*.

        In each round of the loop the first client that waits gets its answer, so that it continues while
        the others are read; these share the turn at the end of the round. Otherwise nsqd and a few clients
        that wait for each answer would work alternately, never at the same time. With replicas all share
        one turn: their answers wait for a replica in any case, and it gets one frame.
        """
        self._answering[connection] = None
        self.request_turn()
        if waits_since_ns:
            self._awaited = True
            self._busy_poll.heard(waits_since_ns)
            if not (self._hurried or self._replication.primary.replicates):
                self._hurried = True
                self._take(waits_since_ns)

    def when_stored(self, topic: Topic, callback: Callback, *, durable: bool = False) -> None:
        """Call *callback* when the messages just published to *topic* are stored, or with the error.

        With *durable* that is after an fsync, in any mode.
        """
        self._broker.dirty[topic] = None
        self._publishes.append((topic, callback, durable))
        self.request_turn()

    def stored(self, topic: Topic, *, durable: bool = False) -> asyncio.Future[None]:
        """Wait until the messages just published to *topic* are stored. Raises NotStored."""
        future: asyncio.Future[None] = self._loop.create_future()
        self.when_stored(topic, _settler(future), durable=durable)
        return future

    def note_stored(self, topic: Topic, *, durable: bool = False) -> asyncio.Future[None]:
        """Wait until the notes just staged at *topic* are stored. Raises NotStored."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._broker.dirty[topic] = None
        self._notes.append((topic, _settler(future), durable))
        self.request_turn()
        return future

    def names_durable(self) -> asyncio.Future[None]:
        """Wait until the removal of deleted topics' folders is durable. Raises NotStored."""
        future: asyncio.Future[None] = self._loop.create_future()
        # The turn announces the deletion.
        self.request_turn()
        self._fsync.when_names_durable(_settler(future))
        return future

    # --- the turn ---

    def run(self) -> None:
        """Take the turn at the end of a round."""
        self._scheduled = self._hurried = False
        if (self._wanted or self._broker.dirty) and not self._closed:
            self._take(clock_ns())

    def _take(self, now_ns: int) -> None:
        self._wanted = False
        broker = self._broker
        if broker.events:
            self._notify()
        failures = self._commit.store(now_ns, self._is_small) if broker.dirty else _NONE
        if self._answering:
            self._answer(failures.publishes)
        if self._publishes:
            publishes, self._publishes = self._publishes, []
            self._resolve(publishes, failures.publishes, is_publish=True)
        if self._notes:
            notes, self._notes = self._notes, []
            self._resolve(notes, failures.notes, is_publish=False)
        if broker.wake:
            self._serve(now_ns)
        if broker.stalled or self._unreadable:
            self._log_unreadable()
        if broker.events:
            self._notify()
        self._deadlines.arm(now_ns)
        if self._awaited:
            self._awaited = False
            self._busy_poll.answered()
        if broker.dirty:
            # An event of this turn has staged a note.
            self.request_turn()

    def _serve(self, now_ns: int) -> None:
        wake = self._broker.wake
        later: list[Channel] = []
        while wake:
            channel, _ = wake.popitem()
            if channel.deleted:
                continue
            if serve(self._broker, channel, now_ns):
                later.append(channel)
            if channel.backlog.dead_letter_queue.count:
                self.dead_letter_mover.move(channel)
            for sibling in channel.siblings:
                if sibling.backlog.dead_letter_queue.count:
                    self.dead_letter_mover.move(sibling)
        for channel in later:
            wake[channel] = None
            self.request_turn()

    def _is_small(self) -> bool:
        """Whether few publishers wait in this turn, and none of them has sent ahead."""
        count = len(self._publishes) + len(self._notes)
        for connection in self._answering:
            pending = connection.pending()
            count += pending if pending <= 1 else PIPELINED
        return count <= FEW_PUBLISHERS

    def _answer(self, failed: dict[Topic, str]) -> None:
        answering, self._answering = self._answering, {}
        waits = self._waits
        for connection in answering:
            try:
                for topic, reason in failed.items():
                    connection.not_stored(topic, reason)
                if not (waits and self._defer_replies(connection, failed)):
                    connection.answer()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this client's alone
                self._answer_failed(error)

    @property
    def _waits(self) -> bool:
        """Whether publishers may have to wait for an fsync, or for a replica."""
        return self._fsync.strict or self._replication.primary.replicates

    def _defer_replies(self, connection: Answerer, failed: dict[Topic, str]) -> bool:
        """Hold the replies of *connection* until their topics are durable or copied; False if none waits.

        Replies about *failed* topics are not held.
        """
        waiting = [
            (topic, wait)
            for topic in connection.published()
            if topic not in failed
            for wait in self._waits_of(topic, durable=False, is_publish=True)
        ]
        settle = connection.defer_replies(len(waiting))
        if settle is None:
            return False
        for topic, wait in waiting:
            wait(partial(settle, topic))
        return True

    def _waits_of(self, topic: Topic, *, durable: bool, is_publish: bool) -> list[Wait]:
        """What a client waits for after the append: replicas, an fsync; *durable*: an fsync in any mode."""
        store = store_of(topic)
        if store is None:
            return []
        waits: list[Wait] = []
        ack = self._replication.primary.wait(store, is_publish=is_publish)
        if ack is not None:
            add = ack.add
            waits.append(lambda callback: add(partial(self._call, callback)))
        if durable or self._fsync.waits_for(store):
            waits.append(partial(self._fsync.when_durable, topic, store))
        return waits

    def _resolve(
        self, waiting: list[tuple[Topic, Callback, bool]], failed: dict[Topic, str], *, is_publish: bool
    ) -> None:
        for topic, callback, durable in waiting:
            waits = [] if topic in failed else self._waits_of(topic, durable=durable, is_publish=is_publish)
            if not waits:
                self._call(callback, failed.get(topic, ""))
                continue
            callback = _after_all(len(waits), callback)
            for wait in waits:
                wait(callback)

    def _call(self, callback: Callback, reason: str) -> None:
        try:
            callback(reason)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this client's alone
            self._answer_failed(error)

    def _answer_failed(self, error: Exception) -> None:
        """Report a failed answer; other clients still get theirs."""
        self._loop.call_exception_handler({"message": "an answer failed", "exception": error})

    def _log_unreadable(self) -> None:
        """Log which topics have messages that cannot be read at the moment, and which can be read again."""
        stalled = self._broker.stalled
        for channel in [
            one for one in stalled if one.deleted or not (one.stalled and one.backlog.pending.count)
        ]:
            del stalled[channel]
        reasons = {channel.topic_name: channel.stalled for channel in stalled}
        for name, reason in reasons.items():
            if self._health.failed(reading_of(name), reason):
                self._log.error("TOPIC(%s) failed to read its messages, will try again - %s", name, reason)
        for name in self._unreadable.keys() - reasons:
            self._health.worked(reading_of(name))
            self._log.info("TOPIC(%s) can be read again", name)
        self._unreadable = reasons

    def _notify(self) -> None:
        events, self._broker.events = self._broker.events, []
        for event in events:
            self._on_event(event)

    def close(self) -> None:
        """End all batches: a later one could retry something and open files that were closed."""
        self._closed = True
        self._deadlines.close()


def _settler(future: asyncio.Future[None]) -> Callable[[str], None]:
    def settle(reason: str) -> None:
        if future.done():
            return
        if reason:
            future.set_exception(NotStored(reason))
        else:
            future.set_result(None)

    return settle


def _after_all(count: int, callback: Callback) -> Callback:
    """Call *callback* after *count* calls of the result, with the first reason if any."""
    reasons: list[str] = []

    def one(reason: str) -> None:
        reasons.append(reason)
        if len(reasons) == count:
            callback(next(filter(None, reasons), ""))

    return one
