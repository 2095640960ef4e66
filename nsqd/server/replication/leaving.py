"""Logs that are handed over: those of this node, and those of others that it gives out."""

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from nsqcore.process.logs import Log
from nsqd.engine import carried
from nsqd.engine.broker import Broker
from nsqd.engine.carried_topic import CarriedTopic
from nsqd.engine.topic import Topic
from nsqd.log.disk import Disk
from nsqd.log.gaps import EVERYTHING
from nsqd.log.ranges import size_of
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.carried_copy import CarriedCopy
from nsqd.replication.choosing import Appointed, Candidate
from nsqd.replication.home import Home, HomeSettings
from nsqd.replication.serving import CopyPhase
from nsqd.server.clock import now_ns
from nsqd.server.replication.linking import Linking
from nsqd.server.replication.troubles import Troubles
from nsqd.storage.slots import CheckpointJob, CheckpointSlots
from nsqd.storage.topic_store import TopicStore, store_of

_TICK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The network and the clock, which a simulation replaces."""

    # Takes the arguments of `Linking`.
    connect: Callable[..., Linking] = Linking
    clock: Callable[[], int] = now_ns


OUTSIDE: Final = Surroundings()


class WritesCheckpoints(Protocol):
    """The part of `upkeep.Checkpoints` that is needed here."""

    async def write_at_once(self, topic: Topic) -> bool: ...

    def at_rest(self, topic: Topic) -> "contextlib.AbstractAsyncContextManager[None]": ...


class TakesTakers(Protocol):
    """The part of `copying.Replication` that is needed here."""

    home: Home | None

    def take_on(self, address: str) -> Linking: ...

    def dismiss_taker(self) -> None: ...

    def leave_taker(self) -> None: ...


def size_of_files(topics: Iterable[Topic]) -> int:
    """The bytes that are to be sent for these topics."""
    return sum(store.size for topic in topics if (store := store_of(topic)) is not None)


def flying(topics: Iterable[Topic]) -> int:
    """How many messages of these topics are in flight."""
    return sum(size_of(ranges) for topic in topics for ranges in carried.in_flight(topic).values())


class OwnLogs:
    """The topics of this node, on which an nsqd runs."""

    def __init__(
        self,
        identity: bytes,
        folder: Path,
        broker: Broker,
        copying: TakesTakers,
        checkpoints: WritesCheckpoints,
        *,
        send_away: Callable[[], None],
        ask_turn: Callable[[], None],
    ) -> None:
        self.identity = identity
        self.folder = folder
        self._broker = broker
        self._copying = copying
        self._checkpoints = checkpoints
        self._send_away = send_away
        self._ask_turn = ask_turn

    @property
    def home(self) -> Home:
        home = self._copying.home
        assert home is not None  # noqa: S101 - there is one from `appoint` on
        return home

    def are_ours(self) -> bool:
        return True

    def check(self) -> None:
        """Do nothing: the node watches what drives its connections."""

    def _topics(self) -> list[Topic]:
        return [topic for topic in self._broker.topics.values() if not topic.ephemeral]

    def size(self) -> int:
        return size_of_files(self._topics())

    def appoint(self, taker: str) -> Linking:
        linking = self._copying.take_on(taker)
        linking.hand_over(self.size)
        return linking

    def dismiss(self) -> None:
        self._copying.dismiss_taker()

    def leave(self) -> None:
        self._copying.leave_taker()

    def hold(self) -> None:
        # Nobody may subscribe any more: a first channel would be given the waiting messages.
        self._broker.leaving = True
        for topic in self._topics():
            carried.hold_back(topic, [(0, EVERYTHING)])
        self._ask_turn()

    def go_on(self) -> None:
        self._broker.leaving = False
        for topic in self._topics():
            carried.give_out(self._broker, topic, {})
        self._ask_turn()

    def in_flight(self) -> int:
        topics = self._topics()
        return flying(topics) + sum(topic in self._broker.dirty for topic in topics)

    def send_away(self) -> None:
        self._send_away()

    async def note(self) -> bool:
        for topic in self._topics():
            if not (topic.deleted or await self._checkpoints.write_at_once(topic)):
                return False
        return True


class ApartLogs:
    """Logs with a `Home` made only for the hand-over, and a connection that is kept up here."""

    def __init__(
        self,
        home: Home,
        folder: Path,
        disk: Disk,
        file: AppointmentsFile,
        log: Log,
        tls: ssl.SSLContext | None,
        around: Surroundings = OUTSIDE,
    ) -> None:
        self.identity = home.identity
        self.home = home
        self.folder = folder
        self._disk = disk
        self._file = file
        self._log = log
        self._tls = tls
        self._around = around
        self.troubles = Troubles(around.clock)
        self._pool = ThreadPoolExecutor(2, "hand over")
        # The number of the taker's appointment, if it was not a keeper before.
        self._new = 0
        self._tasks: list[asyncio.Task[None]] = []

    def topics(self) -> list[Topic]:
        raise NotImplementedError

    def are_ours(self) -> bool:
        return True

    def check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def note_topic(self, topic: Topic) -> bool:
        """Write a checkpoint of one topic, and stream it."""
        raise NotImplementedError

    async def turn(self) -> None:
        """Do what needs doing some twenty times a second."""

    def size(self) -> int:
        return size_of_files(self.topics())

    def appoint(self, taker: str) -> Linking:
        """Appoint the taker, and connect to it. Raises OSError."""
        with self._file.change() as known:
            found = next((one for one in known.current if one.address == taker), None)
            appointed = found or known.appoint(Candidate(taker))
        self._new = appointed.number if found is None else 0
        self.home.addresses = {one.address for one in known.current}
        linking = self._around.connect(
            self.home, appointed, self._log, self._pool, self._disk, tls=self._tls, heard=self._heard
        )
        linking.hand_over(self.size)
        self._tasks = [
            asyncio.create_task(linking.run(), name=f"hand-over to {taker}"),
            asyncio.create_task(self._pump(linking), name="hand-over"),
        ]
        return linking

    def _heard(self, appointed: Appointed, identity: str) -> None:
        """Note the identity that the taker has told."""
        self._file.appointments.met(appointed.number, identity)

    def keepers(self) -> list[str]:
        """The addresses of all nsqd that may have copies of these logs."""
        return sorted({one.address for one in self._file.fellows()})

    def dismiss(self) -> None:
        """Give up this try. The number stays noted, so the next try goes on with the same copy."""
        for task in self._tasks:
            task.cancel()
        try:
            with self._file.change() as known:
                # A taker that was appointed here and never answered has no copy, so it is forgotten.
                known.current = [one for one in known.current if one.identity or one.number != self._new]
        except OSError as error:
            self._log.warning("HAND-OVER: a taker that did not answer stays noted - %s", error)

    def give_up_number(self, taker: str) -> None:
        """Make the next try use another appointment. Raises OSError."""
        with self._file.change() as known:
            for one in [one for one in known.current if one.address == taker]:
                known.dismiss(one)

    def leave(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """End the connection and the threads."""
        self.dismiss()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._pool.shutdown)

    async def _pump(self, linking: Linking) -> None:
        while True:
            now = self._around.clock()
            linking.met()
            for link in self.home.links:
                link.tick(now)
            await self.turn()
            wanted, self.home.wants_checkpoint = self.home.wants_checkpoint, {}
            for topic in self.topics():
                store = store_of(topic)
                if store is None or store not in wanted:
                    continue
                if not (self.troubles.may_try(topic) and await self.note_topic(topic)):
                    self.home.wants_checkpoint[store] = None
            if linking.connection is not None:
                linking.connection.go_on()
            await asyncio.sleep(_TICK_S)

    async def note(self) -> bool:
        for topic in self.topics():
            if not await self.note_topic(topic):
                return False
        return True


class CarriedLogs(ApartLogs):
    """The topics of another data path, which this node carries and hands on."""

    def __init__(
        self,
        copy: CarriedCopy,
        checkpoints: WritesCheckpoints,
        home: Home,
        folder: Path,
        disk: Disk,
        file: AppointmentsFile,
        log: Log,
        tls: ssl.SSLContext | None,
        *,
        allow: Callable[[bytes], None],
        send_away: Callable[[], None],
        ask_turn: Callable[[], None],
        around: Surroundings = OUTSIDE,
    ) -> None:
        """*allow* makes the carrier decide again what it gives out."""
        super().__init__(home, folder, disk, file, log, tls, around)
        home.stands_in = True
        self._copy = copy
        self._allow = allow
        self._checkpoints = checkpoints
        self._send_away = send_away
        self._ask_turn = ask_turn
        self._slots: dict[CarriedTopic, CheckpointSlots] = {}
        for topic in self.topics():
            store = store_of(topic)
            if store is not None:
                home.add(store, topic.name)

    def topics(self) -> list[Topic]:
        return [topic for topic in self._copy.topics.values() if not topic.given_up]

    def are_ours(self) -> bool:
        # If the copy is not carried any more, its home came back, or it is not needed and is removed.
        return self._copy.phase is CopyPhase.CARRIED

    async def turn(self) -> None:
        """Tell the taker of topics that were deleted here meanwhile."""
        known = dict(self.home.known())
        for topic in self._copy.topics.values():
            store = store_of(topic)
            if topic.given_up and store is not None and store in known:
                self.home.deleted(store)

    def hold(self) -> None:
        self._copy.leaves = True
        self._allow(self.identity)
        self._ask_turn()

    def go_on(self) -> None:
        self._copy.leaves = False
        self._allow(self.identity)
        self._ask_turn()

    def in_flight(self) -> int:
        return flying(self.topics())

    def send_away(self) -> None:
        self._send_away()

    async def note_topic(self, topic: Topic) -> bool:
        """Write a checkpoint in place of the home, among the home's files, and stream it."""
        store = store_of(topic)
        if store is None or not isinstance(topic, CarriedTopic) or topic.deleted:
            return False
        async with self._checkpoints.at_rest(topic):
            try:
                slots = self._slots.get(topic)
                if slots is None:
                    slots = CheckpointSlots(self._disk, store.folder)
                    slots.load(self._log.warning, topic.name)
                    self._slots[topic] = slots
                slots.begin_anew()
                job = slots.begin(topic, store.mark(topic.log.next_seq))
                # That checkpoint has taken the topic's changes, so the carrier's own next one must be whole.
                store.checkpoints.begin_anew()
                topic.changed = True
                await asyncio.to_thread(job.run, self._disk)
                slots.end(job)
            except OSError as error:
                if self.troubles.failed(topic, error):
                    self._log.warning(
                        "HAND-OVER: failed to write a checkpoint to %s - %s", store.folder, error
                    )
                return False
        self.troubles.worked(topic)
        self.home.checkpointed(store, job)
        return True


class StoppedLogs(ApartLogs):
    """The topics of a data path on which no nsqd runs."""

    def __init__(
        self,
        broker: Broker,
        home: Home,
        folder: Path,
        disk: Disk,
        file: AppointmentsFile,
        log: Log,
        tls: ssl.SSLContext | None,
        around: Surroundings = OUTSIDE,
    ) -> None:
        super().__init__(home, folder, disk, file, log, tls, around)
        self._broker = broker
        for topic in broker.topics.values():
            store = store_of(topic)
            if store is not None:
                home.add(store, topic.name)

    def topics(self) -> list[Topic]:
        return list(self._broker.topics.values())

    def hold(self) -> None:
        """Do nothing: nothing is given out."""

    def go_on(self) -> None:
        """Do nothing: nothing is given out."""

    def in_flight(self) -> int:
        return 0

    def send_away(self) -> None:
        """Do nothing: there are no consumers."""

    async def turn(self) -> None:
        """Write the notes of what keepers reported as given out."""
        broker = self._broker
        while broker.dirty:
            topic, _ = broker.dirty.popitem()
            store = store_of(topic)
            blocks, notes = topic.staged(), topic.staged_notes()
            if store is not None and (blocks or notes):
                store.append(blocks, notes, topic.log.next_seq)
            broker.commit(topic)
        broker.wake.clear()
        broker.events.clear()

    async def note_topic(self, topic: Topic) -> bool:
        store = store_of(topic)
        if store is None:
            return True
        job = begin_checkpoint(topic, store)
        try:
            await asyncio.to_thread(job.run, self._disk)
        except OSError as error:
            if self.troubles.failed(topic, error):
                self._log.warning("cannot write a checkpoint to %s - %s", store.folder, error)
            return False
        self.troubles.worked(topic)
        store.checkpoints.end(job)
        self.home.checkpointed(store, job)
        return True


def begin_checkpoint(topic: Topic, store: TopicStore) -> CheckpointJob:
    """Begin a whole checkpoint, for a reader that has no earlier ones. Raises OSError."""
    store.checkpoints.begin_anew()
    store.make_folder()
    return store.checkpoints.begin(topic, store.mark(topic.log.next_seq))


def apart_home(
    identity: bytes, node_id: int, address: str, secret: Callable[[], bytes], file: AppointmentsFile
) -> Home:
    """A `Home` for logs that are handed over and get no new messages."""
    home = Home(HomeSettings(secret=secret), identity, node_id, address, again=file.again)
    # The taker hears of the other keepers, which it asks, and which let go of what it has.
    home.fellows = file.fellows
    return home
