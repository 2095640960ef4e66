import pytest

from nsqd.log.encoder import Batch, Encoder
from nsqd.log.frames import Block
from nsqd.log.gaps import CannotRead, Gap, Why
from nsqd.log.ids import MessageIds
from nsqd.log.ranges import size_of
from nsqd.log.tail import MIN_RESIDENT_BYTES, MessageLog
from tests.support.engine import SECOND, Node, NoDisk

NOW = 1


class Shelf:
    """A source of given blocks and gaps."""

    def __init__(self, *stored):
        self.stored = stored
        self.asked = []

    def read(self, seq, end):
        self.asked.append(seq)
        for one in self.stored:
            first, end = (one.first, one.next) if isinstance(one, Block) else (one.start, one.end)
            if first <= seq < end:
                return one
        return None


class Broken:
    """A source that cannot be read just now."""

    def read(self, seq, end):
        raise CannotRead("too many open files")


def blocks(*counts, first=100, size=200_000):
    encoder = Encoder(MessageIds(1), first)
    return [encoder.batch(Batch([b"x" * (size // count)] * count), NOW) for count in counts]


def test_messages_are_found_in_their_blocks():
    log = MessageLog(NoDisk(), 100, limit=1000)
    made = blocks(3, 1, 5)
    for block in made:
        log.append(block)

    found = [log.read(seq) for seq in range(100, 109)]

    assert found == [made[0]] * 3 + [made[1]] + [made[2]] * 5
    assert log.read(109) is None


def test_older_blocks_than_limit_are_asked_of_source():
    made = blocks(3, 3, 3)
    shelf = Shelf(*made[:2])
    log = MessageLog(shelf, 100, limit=3)
    for block in made:
        log.append(block)

    assert log.resident_from == 106
    assert log.read(101) is made[0]
    assert log.read(107) is made[2]
    assert shelf.asked == [101]


def test_newest_page_stays_with_limit_of_zero():
    made = blocks(3, 3, 3)
    log = MessageLog(Shelf(*made), 100, limit=0)
    for block in made:
        log.append(block)

    assert log.resident_from == 106
    assert log.resident_bytes <= MIN_RESIDENT_BYTES
    assert log.read(104) is made[1]


def test_numbers_that_were_never_used_are_gap_up_to_the_next_block_or_the_end():
    log = MessageLog(NoDisk(), 100, limit=1000)
    before, refused, after = blocks(2, 2, 2)
    log.append(before)
    log.append(after)
    log.next_seq = 200

    for seq in (refused.first, refused.first + 1):
        assert log.read(seq) == Gap(seq, after.first, Why.UNUSED)
    assert log.read(150) == Gap(150, 200, Why.UNUSED)
    assert log.read(200) is None


def test_gap_in_source_ends_at_memory():
    log = MessageLog(NoDisk(), 100, limit=2)
    for block in blocks(2, 2):
        log.append(block)

    assert log.read(100) == Gap(100, 102, Why.UNUSED)


def test_temporary_read_error_is_no_gap():
    log = MessageLog(Broken(), 100, limit=1)
    for block in blocks(3, 3, 3):
        log.append(block)

    with pytest.raises(CannotRead, match="too many open files"):
        log.read(101)
    assert log.read(107).first == 106


def test_thousands_of_blocks_are_released_a_few_at_a_time():
    log = MessageLog(NoDisk(), 100, limit=10_000)
    made = blocks(*[1] * 5000, size=200)
    for block in made:
        log.append(block)

    left = []
    while log.release(4100):
        left.append(size_of(log.extents()))

    assert all(before - after < 1000 for before, after in zip([5000, *left], left, strict=False))
    assert (log.resident_from, size_of(log.extents())) == (4100, 1000)
    assert log.resident_bytes == sum(len(block.data) for block in made[4000:])
    assert [log.read(seq) for seq in range(4100, 5100)] == made[4000:]


def test_block_that_is_half_done_is_not_released():
    log = MessageLog(NoDisk(), 100, limit=10)
    for block in blocks(2, 2):
        log.append(block)

    assert not log.release(103)
    assert (log.resident_from, size_of(log.extents())) == (102, 2)


def test_thousands_of_small_blocks_come_and_go():
    log = MessageLog(NoDisk(), 100, limit=10)
    for block in blocks(*[1] * 2200):
        log.append(block)

    assert log.resident_from == 2290
    assert log.read(2295).first == 2295
    assert size_of(log.extents()) == 10


# --- a log in memory only


def kept(log, first=100, end=200):
    return [seq for seq in range(first, end) if isinstance(log.read(seq), Block)]


def test_log_in_memory_keeps_only_what_it_is_told_to():
    log = MessageLog(None, 100, limit=0)
    for block in blocks(3, 3, 3):
        log.append(block)
    size = log.resident_bytes

    log.retain([(101, 102), (103, 106), (108, 109)])

    assert kept(log) == [101, 103, 104, 105, 108]
    assert size_of(log.extents()) == 5
    assert size / 2 < log.resident_bytes < size * 6 / 9
    assert log.read(100) == Gap(100, 101, Why.COMPACTED)
    assert log.read(107) == Gap(107, 108, Why.COMPACTED)
    assert log.log_start == 101


def test_block_that_is_wanted_whole_is_not_copied():
    log = MessageLog(None, 100, limit=0)
    made = blocks(3, 3)
    for block in made:
        log.append(block)

    log.retain([(100, 106)])

    assert log.read(104) is made[1]


def test_log_of_which_nothing_is_wanted_is_empty_and_goes_on():
    log = MessageLog(None, 100, limit=0)
    first, second = blocks(3, 3)
    log.append(first)
    log.retain([])
    assert (size_of(log.extents()), log.resident_bytes, log.resident_from) == (0, 0, 103)

    log.append(second)

    assert kept(log) == [103, 104, 105]


def test_deferred_message_of_ephemeral_topic_keeps_only_itself_in_memory():
    node = Node()
    topic = node.topic("t#ephemeral")
    channel = node.broker.channel(topic, "c#ephemeral")
    consumer, outlet = node.subscribe(channel, rdy=2500)
    topic.stage(b"later", node.now_ns, node.now_ns + 3600 * SECOND)
    for _ in range(100):
        topic.stage_batch(Batch([b"x" * 200] * 100), node.now_ns)
        node.broker.dirty[topic] = None
        node.turn()
        for message_id, _, _ in outlet.taken():
            node.finish(consumer, message_id)
        topic.trim()

    assert size_of(topic.log.extents()) == 1
    node.advance(3601)
    assert [body for _, _, body in outlet.taken()] == [b"later"]
