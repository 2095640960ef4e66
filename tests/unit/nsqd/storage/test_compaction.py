import pytest

from nsqd.engine.block import Encoder
from nsqd.engine.ids import MessageIds
from nsqd.storage.compaction import merged, owed_by
from nsqd.storage.disk import Disk
from nsqd.storage.topic_store import TopicStore
from tests.support.disks import FullDisk
from tests.support.engine import Node

FIRST = 1000


@pytest.fixture
def encoder():
    return Encoder(MessageIds(1), FIRST)


class Shop:
    def __init__(self, folder):
        self.folder = folder
        self.warnings = []

    def open(self, disk=None):
        self.store = TopicStore(
            disk or Disk(), self.folder, 1 << 20, self.warnings.append, worth_compacting=1
        )
        self.recovered = self.store.recover()
        return self.store

    def bodies(self):
        found, seq = {}, FIRST
        while (block := self.store.block_from(seq)) is not None:
            for each in range(max(seq, block.first), block.next):
                found[each] = block.frames(each, each + 1)[34:]
            seq = block.next
        return found


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path / "t.topic")


def filled(shop, encoder, disk=None):
    """A sealed segment of ten appends of ten messages, and a newer one."""
    store = shop.open(disk)
    for n in range(10):
        store.append([encoder.bodies([b"%d" % (n * 10 + m) for m in range(10)], 1)])
    store.seal()
    store.append([encoder.bodies([b"newest"], 1)])
    return store


def run(store, *owed):
    job = store.begin_compaction(lambda: merged(list(owed)))
    if job is not None:
        job()
    return store.end_compaction()


def test_what_is_owed_is_kept_and_the_rest_of_the_segment_goes(shop, encoder):
    store = filled(shop, encoder)

    saved = run(store, (FIRST + 15, FIRST + 17), (FIRST + 99, FIRST + 101))

    assert saved > 3000
    kept = {FIRST + 15: b"15", FIRST + 16: b"16", FIRST + 99: b"99", FIRST + 100: b"newest"}
    assert shop.bodies() == kept
    store.close()
    shop.open()
    assert shop.bodies() == kept
    assert len(list(shop.folder.glob("*.log"))) == 2


def test_a_segment_of_which_much_is_owed_is_left_alone(shop, encoder):
    store = filled(shop, encoder)

    assert run(store, (FIRST, FIRST + 50)) == 0
    assert len(shop.bodies()) == 101


def test_a_segment_in_the_middle_that_nobody_needs_goes_as_a_whole(shop, encoder):
    store = filled(shop, encoder)

    run(store, (FIRST + 100, FIRST + 101))

    assert shop.bodies() == {FIRST + 100: b"newest"}
    assert len(list(shop.folder.iterdir())) == 2


def test_a_small_segment_is_not_worth_it(tmp_path, encoder):
    store = TopicStore(Disk(), tmp_path / "t.topic", 1 << 20, pytest.fail)
    store.append([encoder.bodies([b"x"] * 10, 1)])
    store.seal()

    assert run(store, (FIRST, FIRST + 1)) == 0
    assert store.block_from(FIRST).next == FIRST + 10


def test_a_segment_can_be_compacted_again(shop, encoder):
    store = filled(shop, encoder)
    run(store, (FIRST + 10, FIRST + 20))

    run(store, (FIRST + 11, FIRST + 12))
    store.close()

    shop.open()
    assert shop.bodies() == {FIRST + 11: b"11", FIRST + 100: b"newest"}


def test_deferred_messages_keep_their_due_time(shop, encoder):
    store = shop.open()
    store.append([encoder.bodies([b"x"] * 50, 1), encoder.deferred(b"later", 99, 1)])
    store.seal()

    run(store, (FIRST + 50, FIRST + 51))
    store.close()

    shop.open()
    assert [(entry.first, entry.due_ns) for entry in shop.recovered[0]] == [(FIRST + 50, 99)]


def test_a_compaction_that_was_cut_off_never_happened(shop, encoder):
    store = filled(shop, encoder)
    store.close()
    name = f"{FIRST:016x}.1"
    (shop.folder / f"{name}.log").write_bytes(b"half")
    (shop.folder / f"{name}.index.new").write_bytes(b"half")

    store = shop.open()

    assert len(shop.bodies()) == 101
    assert run(store, (FIRST + 5, FIRST + 6)) > 0
    assert FIRST + 5 in shop.bodies()


def test_of_two_generations_the_finished_one_counts(shop, encoder):
    store = filled(shop, encoder)
    old = (shop.folder / f"{FIRST:016x}.log").read_bytes(), (shop.folder / f"{FIRST:016x}.index").read_bytes()
    run(store, (FIRST + 5, FIRST + 6))
    store.close()
    # as if the process had died before it removed the old one
    (shop.folder / f"{FIRST:016x}.log").write_bytes(old[0])
    (shop.folder / f"{FIRST:016x}.index").write_bytes(old[1])

    shop.open()

    assert shop.bodies() == {FIRST + 5: b"5", FIRST + 100: b"newest"}
    assert not (shop.folder / f"{FIRST:016x}.log").exists()


def test_on_a_full_disk_the_old_segment_stays(shop, encoder):
    disk = FullDisk(room=1 << 20)
    store = filled(shop, encoder, disk)
    disk.room = 20

    with pytest.raises(OSError, match="No space left"):
        run(store, (FIRST + 5, FIRST + 6))

    assert store.end_compaction() == 0
    assert len(shop.bodies()) == 101
    assert len(list(shop.folder.iterdir())) == 4


def test_a_segment_dropped_meanwhile_takes_its_copy_along(shop, encoder):
    store = filled(shop, encoder)
    job = store.begin_compaction(lambda: [(FIRST + 5, FIRST + 6)])
    job()
    store.drop_below(FIRST + 100)

    assert store.end_compaction() == 0
    assert len(list(shop.folder.iterdir())) == 2


def test_what_is_owed_counts_waiting_flying_and_deferred_messages_of_all_channels():
    node = Node()
    channel, other = node.channel(), node.channel("other")
    node.publish(*[b"x"] * 10)
    first = node.topic().log.next_seq - 10
    other.commit(first + 10)
    consumer, _ = node.subscribe(channel, rdy=3)
    channel.requeue(first, consumer, 10**12, node.now_ns)
    channel.finish(first + 1, consumer, node.now_ns)
    owed = owed_by(node.topic())
    channel.empty()

    assert owed() == [(first, first + 1), (first + 2, first + 10)]


@pytest.mark.parametrize(
    ("ranges", "result"),
    [
        ([], []),
        ([(5, 6), (1, 2)], [(1, 2), (5, 6)]),
        ([(1, 3), (2, 4), (4, 5)], [(1, 5)]),
        ([(1, 9), (2, 3)], [(1, 9)]),
    ],
)
def test_ranges_are_merged(ranges, result):
    assert merged(ranges) == result
