from nsqd.engine.block import Encoder
from nsqd.engine.ids import MessageIds
from nsqd.engine.log import Log, NoSource

NOW = 1


class Shelf:
    """A source that holds given blocks."""

    def __init__(self, *blocks):
        self.blocks = blocks

    def block_from(self, seq):
        return next((block for block in self.blocks if block.next > seq), None)


def blocks(*counts, first=100, size=200_000):
    encoder = Encoder(MessageIds(1), first)
    return [encoder.bodies([b"x" * (size // count)] * count, NOW) for count in counts]


def test_every_message_is_found_in_its_block():
    log = Log(NoSource(), 100, limit=1000)
    made = blocks(3, 1, 5)
    for block in made:
        log.append(block)

    found = [log.block_from(seq) for seq in range(100, 109)]

    assert found == [made[0]] * 3 + [made[1]] + [made[2]] * 5
    assert log.block_from(109) is None


def test_older_blocks_than_the_limit_are_asked_of_the_source():
    made = blocks(3, 3, 3)
    log = Log(Shelf(*made[:2]), 100, limit=3)
    for block in made:
        log.append(block)

    assert log.resident_from == 106
    assert log.block_from(101) is made[0]
    assert log.block_from(107) is made[2]


def test_with_a_limit_of_nothing_the_newest_page_still_stays():
    made = blocks(3, 3, 3)
    log = Log(Shelf(*made), 100, limit=0)
    for block in made:
        log.append(block)

    assert log.resident_from == 106
    assert log.block_from(104) is made[1]


def test_after_a_gap_the_next_block_is_given():
    log = Log(NoSource(), 100, limit=1000)
    before, lost, after = blocks(2, 2, 2)
    log.append(before)
    log.append(after)

    assert log.block_from(lost.first) is after


def test_what_the_source_lost_leads_to_what_is_in_memory():
    log = Log(NoSource(), 100, limit=2)
    for block in blocks(2, 2):
        log.append(block)

    found = log.block_from(100)

    assert found is not None
    assert found.first == 102


def test_a_log_that_keeps_all_drops_only_what_is_released():
    log = Log(NoSource(), 100, limit=2, keep_all=True)
    for block in blocks(2, 2, 2):
        log.append(block)
    assert log.resident_count == 6

    log.release(103)

    assert log.resident_from == 102


def test_thousands_of_small_blocks_come_and_go():
    log = Log(NoSource(), 100, limit=10)
    for block in blocks(*[1] * 5000):
        log.append(block)

    assert log.resident_from == 5090
    assert log.block_from(5095).first == 5095
