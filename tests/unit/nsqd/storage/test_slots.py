"""Two checkpoints are written in turn: whatever happens to the one being written, the other exists."""

import errno
import os
import struct

import pytest
from xxhash import xxh3_64_intdigest

from nsqd.log.disk import Disk
from nsqd.log.layout import NewerVersion
from nsqd.log.tail_records import CheckpointPosition
from nsqd.storage.slots import NAMES, CheckpointSlots
from tests.support.disks import DyingDisk, FaultyDisk
from tests.support.engine import SECOND, Node


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "t.topic").mkdir()
    return tmp_path / "t.topic"


class Keeper:
    """Writes checkpoints with rising numbers of notes, so that they can be told apart."""

    def __init__(self, folder, topic_name="t"):
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.warnings = []
        self.topic = Node().topic(topic_name)
        self.count = 0
        self.start()

    def start(self, disk=None):
        self.disk = disk or Disk()
        self.slots = CheckpointSlots(self.disk, self.folder)
        self.warnings.clear()
        state = self.slots.load(self.warnings.append, self.topic.name)
        return None if state is None else state.checkpoint_position.notes

    def write(self, *, durable=True):
        self.count += 1
        job = self.slots.start_job(self.topic, CheckpointPosition(notes=self.count), durable=durable)
        job.run(self.disk)
        self.slots.end(job)
        return self.count


@pytest.fixture
def keeper(folder):
    return Keeper(folder)


def test_slots_without_checkpoint_cover_nothing(keeper):
    assert keeper.start() is None
    assert (keeper.slots.covered_low_water, keeper.slots.covered_notes) == (0, 0)


def meaningless(content):
    body = content[:16] + b'{"serial":99}\n'
    return body + struct.pack("<Q", xxh3_64_intdigest(body))


@pytest.mark.parametrize(
    "damage",
    [lambda _: b"", lambda _: b"x", lambda _: bytes(4096), meaningless],
    ids=["empty", "x", "zeros", "{}"],
)
def test_damaged_checkpoint_leaves_the_one_before(keeper, folder, damage):
    older, newer = keeper.write(), keeper.write()
    path = folder / NAMES[1]
    path.write_bytes(damage(path.read_bytes()))

    assert keeper.start() == older
    assert keeper.slots.damaged
    assert "cannot use" in keeper.warnings[0]
    assert keeper.write() == newer + 1
    assert keeper.start() == newer + 1


def test_damaged_checkpoints_are_reported(keeper, folder):
    keeper.write()
    keeper.write()
    for name in NAMES:
        (folder / name).write_bytes(b"")

    assert keeper.start() is None
    assert keeper.slots.damaged
    assert len(keeper.warnings) == 2


@pytest.mark.parametrize(
    "then",
    [
        [("write", 2)],
        [("begin", 0)],
        [("write, not durable", 0)],
        [("start", 0), ("write", 0), ("write", 3)],
    ],
)
def test_slots_cover_what_both_checkpoints_know(keeper, then):
    steps = {
        "write": keeper.write,
        "begin": lambda: keeper.slots.start_job(keeper.topic, CheckpointPosition(notes=99)),
        "write, not durable": lambda: keeper.write(durable=False),
        "start": keeper.start,
    }
    for step, covered in [("write", 0), ("write", 1), *then]:
        steps[step]()
        assert keeper.slots.covered_notes == covered
        assert keeper.slots.covered_low_water == (keeper.topic.low_water() if covered else 0)


def test_messages_are_covered_when_both_checkpoints_finished_them(folder, node):
    channel = node.channel()
    node.publish(b"1", b"2")
    topic, slots = node.topic(), CheckpointSlots(Disk(), folder)
    covered = []
    for finished in (0, 0, 1, 1):
        channel.commit(topic.log.next_seq - 2 + finished)
        job = slots.start_job(topic, CheckpointPosition(topic.log.next_seq))
        job.run(Disk())
        slots.end(job)
        covered.append(slots.covered_low_water)

    first = topic.log.next_seq - 2
    assert covered == [0, first, first, first + 1]


def test_newest_durable_one_is_never_written_over(keeper, folder):
    durable = keeper.write()
    for _ in range(4):
        keeper.write(durable=False)
        (folder / NAMES[1]).write_bytes(b"")  # a power cut may leave it empty
        assert CheckpointSlots(Disk(), folder).load(lambda _: None).checkpoint_position.notes == durable


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("written", range(4))
def test_crash_at_any_call_leaves_one_of_the_last_two(keeper, written, durable):
    for _ in range(written):
        keeper.write()
    keeper.start()
    for calls in range(10):
        keeper.disk = DyingDisk(calls)
        before = keeper.count
        try:
            newest = keeper.write(durable=durable)
        except OSError:
            newest = None
        # The job ends with the process.
        found = keeper.start()
        if newest is not None:
            assert found == newest
            return
        assert found in {before or None, before + 1}
        keeper.count = found or 0
    pytest.fail("it never came to an end")


@pytest.mark.parametrize("call", ["open_write", "write_at", "sync"])
def test_failed_checkpoint_is_retried_and_the_other_stays(keeper, folder, call):
    keeper.write()
    kept = keeper.write()
    for _ in range(3):
        keeper.disk = FaultyDisk(**{call: errno.ENOSPC, "replace": errno.ENOSPC})
        with pytest.raises(OSError, match="No space"):
            keeper.write()
        assert keeper.slots.covered_notes == 0
        assert CheckpointSlots(Disk(), folder).load(lambda _: None).checkpoint_position.notes >= kept
        assert set(Disk().names(folder)) <= set(NAMES)
    keeper.disk = Disk()

    newest = keeper.write()

    assert keeper.start() == newest


def test_additions_are_bounded_while_checkpoints_fail(keeper, folder):
    channel = keeper.topic.add_channel("c")
    channel.backlog.extend(channel.backlog.end, channel.backlog.end + 1)
    for _ in range(4):
        keeper.write()
    keeper.disk = FaultyDisk(write_at=errno.ENOSPC, replace=errno.ENOSPC)
    for round_ in range(100):
        for due_ns in range(100 * round_, 100 * round_ + 100):
            channel.backlog.discard([(channel.backlog.end - 1, channel.backlog.end)])
            channel.backlog.defer(channel.backlog.end - 1, channel.backlog.end, 1 + due_ns)
        with pytest.raises(OSError, match="No space"):
            keeper.write()
    keeper.disk = Disk()

    keeper.write()
    newest = keeper.write()

    # Each fact is 24 bytes: there were 240,000 bytes of them, of which only the last counts.
    assert max((folder / name).stat().st_size for name in NAMES) < 2000
    assert keeper.start() == newest


def test_checkpoint_file_grows_until_it_is_written_whole(keeper, folder):
    sizes = []
    for _ in range(600):
        newest = keeper.write()
        sizes.append((folder / NAMES[(keeper.count + 1) % 2]).stat().st_size)

    grown = [later > before for before, later in zip(sizes[::2], sizes[2::2], strict=False)]
    assert grown.count(False) in {1, 2, 3}
    assert max(sizes) < 80_000
    assert keeper.start() == newest
    # A checkpoint of an earlier life is not extended.
    keeper.write()
    assert (folder / NAMES[0]).stat().st_size < 2000 or (folder / NAMES[1]).stat().st_size < 2000


@pytest.mark.parametrize("cut", [1, 8, 30])
def test_whole_records_of_torn_checkpoint_count(keeper, folder, cut):
    for _ in range(4):
        keeper.write()
    path = folder / NAMES[keeper.count % 2 == 0]
    os.truncate(path, path.stat().st_size - cut)
    (folder / NAMES[keeper.count % 2]).unlink()

    assert keeper.start() == 2
    assert "bytes cannot be used" in keeper.warnings[0]
    assert not keeper.slots.damaged


def test_checkpoint_of_another_topic_is_refused(keeper, folder, tmp_path):
    keeper.write()
    other = Keeper(tmp_path / "u.topic", "u")
    for _ in range(6):
        other.write()
    (folder / NAMES[keeper.count % 2]).write_bytes((other.folder / NAMES[0]).read_bytes())

    assert keeper.start() == 1
    assert keeper.slots.damaged
    assert "it is of the topic 'u'" in keeper.warnings[0]


def test_checkpoint_of_newer_version_stops_start(keeper, folder):
    class Newer(Disk):
        def read_file(self, path):
            raise NewerVersion("checkpoint format 3")

    keeper.write()

    with pytest.raises(NewerVersion):
        keeper.start(Newer())


def test_unreadable_checkpoint_stops_start(keeper):
    keeper.write()

    with pytest.raises(OSError, match="Input/output error"):
        keeper.start(FaultyDisk(read_file=errno.EIO))


@pytest.mark.parametrize("hours", [1, -1])
def test_clock_step_between_checkpoints_moves_no_due_time(folder, node, hours):
    channel = node.channel()
    node.publish(b"early", b"late")
    consumer, outlet = node.subscribe(channel, rdy=2)
    early, late = (node.broker.ids.decode(message_id) for message_id, _, _ in outlet.taken())
    keeper = Keeper(folder)
    keeper.topic = node.topic()
    for _ in range(3):
        keeper.write()
    channel.requeue(early, consumer, 600 * SECOND, node.now_ns)
    channel.requeue(late, consumer, 3600 * SECOND, node.now_ns)
    node.ready(consumer, 0)
    keeper.write()
    keeper.write()

    node.broker.wall.offset_ns += hours * 3600 * SECOND
    node.advance(1200)
    assert (channel.backlog.pending.count, channel.backlog.deferred.count) == (1, 1)
    keeper.write()

    state = CheckpointSlots(Disk(), folder).load(keeper.warnings.append).channels["c"]
    redelivered = Node()
    redelivered.now_ns = node.now_ns
    filled = redelivered.channel().backlog
    state.fill(filled, node.broker.wall.offset_ns)
    assert list(filled.deferred) == [(node.now_ns + 2400 * SECOND, late)]
    assert filled.pending.ranges() == [(early, early + 1)]
