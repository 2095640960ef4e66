"""A home and keeper on a simulated disk: all code of carried logs, without sockets and threads."""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nsqclient.wire.frames import FrameParser
from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel, Consumer
from nsqd.engine.inflight import NotInFlight
from nsqd.engine.limits import Limits
from nsqd.engine.owners import owner_of
from nsqd.engine.state import wanted_of
from nsqd.engine.topic import Topic
from nsqd.log.ids import MessageIds
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.carrier import Carrier
from nsqd.replication.choosing import Appointed
from nsqd.replication.copies import Copies
from nsqd.replication.fellowship import Fellowship
from nsqd.replication.frames import Fellow
from nsqd.replication.home import Home, HomeSettings
from nsqd.replication.homecoming import ComingHome
from nsqd.replication.meeting import KeeperMeeting
from nsqd.replication.opening import CopyOpener
from nsqd.replication.willing import Keeping
from nsqd.server.delivery import serve
from nsqd.server.replication.left_behind import forget
from nsqd.storage.data_path import DataPath, StorageOptions, claim
from nsqd.storage.metadata import Metadata
from nsqd.storage.reservation import Reservation
from nsqd.storage.topic_store import TopicStore, store_of
from tests.campaign.carried.departing import Leaving, Standing
from tests.support.simulated_disk import SimulatedDisk

DATA: Final = Path("/data")
SECOND: Final = 1_000_000_000
SEGMENT: Final = 1500
CARRY_AFTER: Final = 30 * SECOND
CARRY_ASK: Final = 2 * SECOND
MSG_TIMEOUT: Final = 20 * SECOND


@dataclass
class Reader:
    """A consumer of one channel, and its unanswered messages."""

    topic: str
    channel: str
    frames: list[bytes] = field(default_factory=list)
    # Ids and bodies of unanswered messages.
    has: list[tuple[bytes, bytes]] = field(default_factory=list)
    consumer: Consumer | None = None

    def send_messages(self, frames: list[bytes]) -> None:
        self.frames.extend(frames)

    def close(self) -> None: ...

    def take(self) -> list[tuple[bytes, bytes]]:
        """Return the messages that have come since the last call."""
        parser = FrameParser()
        frames = parser.feed(b"".join(self.frames))
        self.frames = []
        new = [(data[10:26], data[26:]) for _, data in frames]
        assert all(struct.unpack_from(">H", data, 8)[0] for _, data in frames)
        self.has += new
        return new


class CarryingNode:
    """A node; each start creates a new object from its disk."""

    def __init__(
        self,
        number: int,
        disk: SimulatedDisk,
        now: int,
        *,
        strict: bool,
        ahead: int = 0,
        draw: Callable[[int], bytes],
        replicas: int = 1,
        begins: Callable[[Reservation], None] = lambda _reservation: None,
    ) -> None:
        """*ahead* is added to its wall clock in ns; *draw* draws the identity of a new data path.

        *begins* is called before anything is loaded.
        """
        self.number, self.disk, self.now = number, disk, now
        self.address = f"n{number}:4150"
        self.said: list[str] = []
        self.broken: list[str] = []
        self.data = DataPath(DATA, StorageOptions(SEGMENT, 300), self.said.append, disk, node_id=number)
        self.broker = Broker(
            MessageIds(number), Limits(mem_queue_size=0, msg_timeout_ns=MSG_TIMEOUT), self.data
        )
        self.broker.wall.offset_ns = ahead
        self.data.reservation.draw = draw
        begins(self.data.reservation)
        self.data.restore(self.broker, Metadata(), now)
        forget(disk, DATA, self.data.reservation)
        self.broker.events.clear()
        identity = self.data.reservation.identity
        self.identity = identity
        self.file = AppointmentsFile(disk, DATA, identity, self.broken.append)
        self.file.load()
        settings = HomeSettings(replicas=replicas, refuse=True, strict=strict)
        self.home = Home(settings, identity, number, self.address, again=self.file.again, heard=self._heard)
        for topic in self.broker.topics.values():
            self._follow(topic)
        self.keeping = Keeping(
            *(Copies(disk, DATA), identity, number, self.address),
            unwilling=self._unwilling,
        )
        opener = CopyOpener(self.data, self.broker)
        self.carrier = Carrier(self.broker, self.keeping.copies, opener, CARRY_AFTER, self.said.append)
        self.carrier.look(now)
        self.meeting = KeeperMeeting(self.keeping, self.carrier)
        self.fellowship = Fellowship(self.carrier, self.address)
        self.keeping.answers = self.fellowship.answers(lambda: self.now)
        self.home.fellows = self.file.fellows
        known = [*self.file.appointments.current, *self.file.appointments.former]
        self.coming = ComingHome(self.broker, {one.address for one in known}, CARRY_ASK, now, claim)
        self.home.holdings = self.coming.holdings
        self.home.settled = self.coming.settled
        self.home.gone = self._gone
        self.home.others_keep = self._others_keep
        self.readers: list[Reader] = []
        # Whether it looks for keepers, and its departure, if it is about to leave permanently.
        self.chooses = True
        self.leaving: Leaving | None = None
        self.standing: Standing | None = None
        self.turn()

    def _unwilling(self) -> str:
        return "the keeper is draining" if self.broker.draining else ""

    def _gone(self, keeper: Appointed, appointment: int) -> None:
        """Note that a keeper has no copies up to an appointment."""
        if self.file.appointments.forget_up_to(keeper.address, appointment):
            self.file.save()

    def _others_keep(self, keepers: tuple[Fellow, ...]) -> None:
        """Note the keepers that another node has appointed in the place of this home."""
        others = [(one.number, one.address) for one in keepers if one.address != self.address]
        if self.file.appointments.heard_of(others):
            self.file.save()

    def _follow(self, topic: Topic) -> None:
        store = store_of(topic)
        if store is not None:
            self.home.add(store, topic.name)

    def _heard(self, keeper: Appointed, topic: str, frame: object) -> None:
        self.coming.heard(keeper.address, topic, frame)  # type: ignore[arg-type]

    # --- what clients do ---

    def publish(self, name: str, body: bytes) -> object:
        """Publish and return what the publisher waits for; None if it is refused."""
        if self.broker.draining:
            return None
        topic = self.broker.topic(name, self.now)
        store = self.store(topic)
        if self.home.lacks(store):
            return None
        topic.stage(body, self.now)
        self.broker.dirty[topic] = None
        self._write()
        return self.home.wait(store)

    def store(self, topic: Topic) -> TopicStore:
        store = store_of(topic)
        assert store is not None
        if all(known is not store for known, _ in self.home.known()):
            self.home.add(store, topic.name)
        return store

    def channel(self, name: str, channel: str) -> Channel:
        made = self.broker.channel(self.broker.topic(name, self.now), channel)
        self.turn()
        return made

    def read(self, name: str, channel: str, rdy: int) -> Reader:
        """Subscribe a consumer and return it."""
        reader = Reader(name, channel)
        found = self.channel(name, channel)
        reader.consumer = Consumer(reader, MSG_TIMEOUT)
        found.subscribe(reader.consumer, self.broker.limits.max_channel_consumers)
        self.readers.append(reader)
        self.ready(reader, rdy)
        return reader

    def ready(self, reader: Reader, rdy: int) -> None:
        consumer = reader.consumer
        assert consumer is not None
        consumer.rdy = rdy
        if consumer.channel is not None and consumer.channel.refresh(consumer):
            self.broker.serve(consumer.channel)
        self.turn()

    def answer(self, reader: Reader, message: tuple[bytes, bytes], verb: str) -> bool:
        """Answer with FIN or REQ; say whether that was accepted."""
        reader.has.remove(message)
        consumer = reader.consumer
        if consumer is None or consumer.channel is None:
            return False
        channel, seq = owner_of(consumer.channel, self.broker.ids, message[0])
        if seq < 0 or not channel.in_flight.has(seq):
            return False
        try:
            if verb == "FIN":
                channel.finish(seq, consumer, self.now)
            else:
                channel.requeue(seq, consumer, 0, self.now)
        except NotInFlight:
            # Another consumer has the message now.
            return False
        if consumer.channel.refresh(consumer):
            self.broker.serve(consumer.channel)
        self.broker.serve(consumer.channel)
        self.turn()
        return True

    def leave(self, reader: Reader) -> None:
        """Close the consumer's connection."""
        self.readers.remove(reader)
        if reader.consumer is not None and reader.consumer.channel is not None:
            channel = reader.consumer.channel
            channel.unsubscribe(reader.consumer)
            self.broker.serve(channel)
        self.turn()

    def send_away(self) -> None:
        """Close the connections of all clients."""
        for reader in list(self.readers):
            self.leave(reader)

    def forget_readers(self, topic: str, channel: str | None) -> None:
        """Close the connections of a channel's consumers, or of all of the topic's, before it is deleted."""
        for reader in [one for one in self.readers if one.topic == topic and channel in (None, one.channel)]:
            self.leave(reader)

    # --- time ---

    def turn(self) -> None:
        self._write()
        for _ in range(50):
            if not self.broker.wake:
                return
            channel, _ = self.broker.wake.popitem()
            if serve(self.broker, channel, self.now):
                self.broker.serve(channel)

    def _write(self) -> None:
        while self.broker.dirty:
            topic, _ = self.broker.dirty.popitem()
            store = self.store(topic)
            blocks, notes = topic.staged(), topic.staged_notes()
            if blocks and blocks[-1].next > self.broker.sequences.reserved:
                self.data.reservation.extend(blocks[-1].next)
            if blocks or notes:
                store.append(blocks, notes, topic.log.next_seq)
            self.broker.commit(topic)

    def advance(self, now: int) -> None:
        """Advance the time and do everything that is due."""
        self.now = now
        self.broker.expire(now)
        self.meet()
        self.coming.tick(now)
        self.turn()
        if self.leaving is not None:
            self.leaving.go()
        if self.standing is not None:
            self.standing.go()

    def meet(self) -> None:
        """Meet the homes that have copies here."""
        for job in self.meeting.tick(self.now):
            error: Exception | None = None
            try:
                job.run(self.disk)
            except OSError as failed:
                error = failed
            self.meeting.ended(job, error, self.now)

    def checkpoint(self) -> None:
        """Do what the server does once a second."""
        wanted, self.home.wants_checkpoint = self.home.wants_checkpoint, {}
        for topic in list(self.broker.topics.values()):
            self.broker.sequences.note_used(topic.sequence_end)
            self.note_carried(topic)
            store = self.store(topic)
            if store in wanted:
                store.checkpoints.begin_anew()
                topic.changed = True
            if not topic.take_changed():
                continue
            low_water = topic.unwanted_below()
            if store.can_drop_below(low_water, store.notes):
                topic.log.kept_from = max(topic.log.kept_from, store.kept_after_drop(low_water, store.notes))
                # Files are removed when both checkpoints agree.
                topic.changed = True
            job = self.write_checkpoint(topic, store)
            self.home.checkpointed(store, job)
            covered = store.checkpoints
            store.drop_below(min(covered.covered_low_water, topic.unwanted_below()), covered.covered_notes)
            store.remove_files()

    def note_carried(self, topic: Topic) -> None:
        """Note what was done with carried logs, as far as the disk takes it."""
        for carried in topic.carried:
            theirs = store_of(carried)
            if theirs is not None and carried.take_changed():
                try:
                    self.write_checkpoint(carried, theirs)
                except OSError:
                    carried.changed = True

    def write_checkpoint(self, topic: Topic, store: TopicStore):  # type: ignore[no-untyped-def]
        job = store.checkpoints.begin(topic, store.mark(topic.log.next_seq))
        store.make_folder()
        job.run(self.disk)
        store.checkpoints.end(job)
        return job

    def compact(self, name: str) -> None:
        topic = self.broker.topics.get(name)
        if topic is None:
            return
        store = self.store(topic)
        job = store.begin_compaction(
            wanted_of(topic), store.checkpoints.covered_notes, topic.unwanted_below()
        )
        job.run()
        store.end_compaction(job)
        store.remove_files()

    def sync(self) -> None:
        for topic in self.broker.topics.values():
            store = self.store(topic)
            job = store.begin_sync()
            if job is not None:
                job.run(self.disk)
                store.end_sync(job, None)

    def owed(self) -> dict[tuple[str, str], int]:
        """Return what each channel here owes, including carried ones."""
        found: dict[tuple[str, str], int] = {}
        for topic in self.broker.topics.values():
            for one in (topic, *topic.carried):
                for channel in one.channels.values():
                    key = (topic.name, channel.name)
                    found[key] = found.get(key, 0) + channel.depth + channel.in_flight.count
        return found
