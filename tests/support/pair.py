"""A home and a keeper, each on a simulated disk; the test moves, cuts or holds up the bytes between them."""

from pathlib import Path

from nsqd.engine import facts
from nsqd.engine.broker import Broker
from nsqd.engine.limits import Limits
from nsqd.engine.state import wanted_of
from nsqd.engine.topic import Topic
from nsqd.log.ids import MessageIds
from nsqd.log.ranges import Ranges
from nsqd.replication.choosing import Appointed
from nsqd.replication.copies import Copies
from nsqd.replication.frames import is_copied_name
from nsqd.replication.home import Home, HomeSettings
from nsqd.replication.home_link import HomeLink
from nsqd.replication.keeper import KeeperLink
from nsqd.replication.willing import Keeping
from nsqd.storage.data_path import DataPath, StorageOptions, extents_of
from nsqd.storage.metadata import Metadata
from nsqd.storage.topic_store import TopicStore, store_of
from tests.support.jobs import run_all
from tests.support.simulated_disk import SimulatedDisk

DATA = Path("/data")
KEEPER = b"k" * 16
SEGMENT = 3000
_S = 1_000_000_000
WALL = 1_700_000_000 * _S


class HomeNode:
    """A broker with its data path and logs, without a server."""

    def __init__(self, disk: SimulatedDisk, appointed: Appointed, settings: HomeSettings) -> None:
        self.disk = disk
        self.warnings: list[str] = []
        self.appointed = appointed
        self.data = DataPath(DATA, StorageOptions(SEGMENT, 700), self.warnings.append, disk, node_id=1)
        self.broker = Broker(MessageIds(1), Limits(mem_queue_size=0), self.data)
        self.data.restore(self.broker, Metadata(), WALL)
        self.home = Home(settings, self.data.reservation.identity, 1, "home:4150", again=self._again)
        self.home.addresses = {appointed.address}
        self.home.settled = self.settled
        for topic in self.broker.topics.values():
            self._add(topic)
        self.now = WALL

    def _again(self, one: Appointed, above: int) -> Appointed:
        self.appointed = Appointed(max(one.number, above) + 1, one.address, KEEPER.hex())
        return self.appointed

    def settled(self, name: str) -> Ranges:
        return facts.settled(self.topic(name), extents_of(self.topic(name)))

    def _add(self, topic: Topic) -> None:
        store = store_of(topic)
        if store is not None:
            self.home.add(store, topic.name)

    def topic(self, name: str = "t") -> Topic:
        known = name in self.broker.topics
        topic = self.broker.topic(name, self.now)
        if not known:
            self._add(topic)
        return topic

    def store(self, name: str = "t") -> TopicStore:
        store = store_of(self.topic(name))
        assert store is not None
        return store

    def publish(self, *bodies: bytes, name: str = "t") -> list[int]:
        topic = self.topic(name)
        for body in bodies:
            topic.stage(body, self.now)
        self.broker.dirty[topic] = None
        self.turn()
        return list(range(topic.log.next_seq - len(bodies), topic.log.next_seq))

    def channel(self, channel: str, name: str = "t") -> None:
        self.broker.channel(self.topic(name), channel)
        self.turn()

    def turn(self) -> None:
        for topic in self.broker.dirty:
            store = store_of(topic)
            blocks, notes = topic.staged(), topic.staged_notes()
            if store is not None and (blocks or notes):
                store.append(blocks, notes, topic.log.next_seq)
                self.broker.commit(topic)
        self.broker.dirty.clear()

    def delete(self, name: str = "t") -> None:
        topic = self.broker.topics[name]
        self.data.delete(topic)
        self.broker.delete_topic(name)

    def empty(self, name: str = "t") -> None:
        """Empty every channel of the topic."""
        topic = self.topic(name)
        for channel in topic.channels.values():
            self.broker.empty_channel(topic, channel)
        self.turn()

    def sync(self) -> None:
        for topic in self.broker.topics.values():
            store = store_of(topic)
            job = None if store is None else store.begin_sync()
            if store is not None and job is not None:
                job.run(self.disk)
                store.end_sync(job, None)

    def checkpoint(self) -> None:
        """Write checkpoints and remove unwanted files, as the server does once a second."""
        wanted, self.home.wants_checkpoint = self.home.wants_checkpoint, {}
        for topic in list(self.broker.topics.values()):
            store = store_of(topic)
            if store is None:
                continue
            if store in wanted:
                store.checkpoints.begin_anew()
            low_water = topic.unwanted_below()
            if store.can_drop_below(low_water, store.notes):
                topic.log.kept_from = max(topic.log.kept_from, store.kept_after_drop(low_water, store.notes))
            job = store.checkpoints.begin(topic, store.mark(topic.log.next_seq))
            store.make_folder()
            job.run(self.disk)
            store.checkpoints.end(job)
            self.home.checkpointed(store, job)
            covered = store.checkpoints
            store.drop_below(min(covered.covered_low_water, topic.unwanted_below()), covered.covered_notes)
            store.remove_files()

    def compact(self, name: str = "t") -> int:
        topic, store = self.topic(name), self.store(name)
        job = store.begin_compaction(
            wanted_of(topic), store.checkpoints.covered_notes, topic.unwanted_below()
        )
        job.run()
        saved = store.end_compaction(job)
        store.remove_files()
        return saved


class Pair:
    """A home, a keeper, and the bytes on their way between them."""

    def __init__(self, settings: HomeSettings | None = None) -> None:
        self.settings = settings or HomeSettings(replicas=1)
        self.now = WALL
        self.home = HomeNode(SimulatedDisk(DATA), Appointed(1, "keeper:4150"), self.settings)
        self.keeping = Keeping(Copies(SimulatedDisk(DATA), DATA), KEEPER, 2, "keeper:4150")
        self.link: HomeLink | None = None
        self.kept: KeeperLink | None = None
        # Bytes on their way.
        self.out: list[bytes] = []
        self.back: list[bytes] = []

    @property
    def disk(self) -> SimulatedDisk:
        """The keeper's disk."""
        disk = self.keeping.copies.disk
        assert isinstance(disk, SimulatedDisk)
        return disk

    # --- the network ---

    def connect(self) -> None:
        self.cut()
        self.link = HomeLink(self.home.home, self.home.appointed, self.now)
        self.kept = KeeperLink(self.keeping)

    def cut(self, keep: int = 0) -> None:
        """Cut the connection; the first *keep* bytes on their way still arrive."""
        if self.link is not None and self.kept is not None:
            self.out += self.link.flush(self.now)
            self.kept.receive(b"".join(self.out)[:keep])
            self.link.end("cut")
            self.kept.closed()
        self.out, self.back = [], []
        self.link = self.kept = None

    def move(self) -> None:
        """Move bytes until neither side has anything to send."""
        for _ in range(1000):
            if not self.step():
                return
        raise AssertionError("they speak for ever")

    def step(self) -> bool:
        link, kept = self.link, self.kept
        if link is None or kept is None:
            return False
        moved = self._work()
        self.out += link.flush(self.now)
        data, self.out = b"".join(self.out), []
        if data:
            kept.receive(data)
        moved = self._work() or moved
        self.back += kept.out
        kept.out = []
        answer, self.back = b"".join(self.back), []
        if answer and not link.closing:
            link.receive(answer, self.now)
        link.tick(self.now)
        if link.closing or kept.closing:
            self.link = self.kept = None
            link.end("the keeper has gone")
            kept.closed()
            return False
        return bool(data or answer or moved)

    def _work(self) -> bool:
        link, kept = self.link, self.kept
        assert link is not None
        assert kept is not None
        moved = run_all(kept.jobs, self.disk, kept.ended)
        return (
            run_all(link.jobs, self.home.disk, lambda job, error: link.ended(job, error, self.now)) or moved
        )

    def settle(self) -> None:
        """Let everything be copied, including checkpoints."""
        for _ in range(6):
            self.now += _S
            self.move()
            self.home.checkpoint()
        self.now += _S
        self.move()

    # --- faults ---

    def restart_home(self, disk: SimulatedDisk) -> None:
        self.cut()
        self.home = HomeNode(disk, self.home.appointed, self.settings)

    def restart_keeper(self, disk: SimulatedDisk) -> None:
        self.cut()
        self.keeping = Keeping(Copies(disk, DATA), KEEPER, 2, "keeper:4150")

    # --- contents ---

    def copy_path(self, name: str = "t") -> Path:
        identity = self.home.data.reservation.identity
        return DATA / "carried" / identity.hex() / str(self.home.appointed.number) / f"{name}.topic"

    def copied(self, name: str = "t") -> dict[str, bytes]:
        return self._files(self.disk, self.copy_path(name))

    def at_home(self, name: str = "t") -> dict[str, bytes]:
        files = self._files(self.home.disk, DATA / f"{name}.topic")
        sizes = {segment.path.name: segment.size for segment in self.home.store(name).segments}
        return {one: content[: sizes.get(one, len(content))] for one, content in files.items()}

    @staticmethod
    def _files(disk: SimulatedDisk, path: Path) -> dict[str, bytes]:
        try:
            names = disk.names(path)
        except FileNotFoundError:
            return {}
        return {one: disk.read_file(path / one) for one in names if is_copied_name(one)}
