import pytest

from nsqd.engine.block import Encoder
from nsqd.engine.ids import MessageIds
from nsqd.storage.disk import Disk
from nsqd.storage.segment import ENTRY_BYTES, MAGIC, PAGE_BYTES, Segment, SegmentWriter, recover

FIRST = 1000


@pytest.fixture
def encoder():
    return Encoder(MessageIds(1), FIRST)


@pytest.fixture
def writer(tmp_path):
    writer = SegmentWriter(Disk(), Segment(tmp_path, FIRST))
    yield writer
    writer.close()


def recovered(folder):
    segment = Segment(folder, FIRST)
    deferred, torn = recover(segment)
    blocks = [block for page in range(segment.pages) for block in segment.read_page(page)[0]]
    return segment, deferred, torn, b"".join(block.data for block in blocks)


def test_what_was_written_is_read_back(tmp_path, writer, encoder):
    blocks = [encoder.bodies([b"a", b"bb"], 1), encoder.deferred(b"later", 99, 1), encoder.bodies([b"c"], 1)]
    writer.append(blocks)

    segment, deferred, torn, data = recovered(tmp_path)

    assert data == b"".join(block.data for block in blocks)
    assert (segment.first, segment.next, torn) == (FIRST, FIRST + 4, False)
    assert [(entry.first, entry.due_ns) for entry in deferred] == [(FIRST + 2, 99)]


def test_the_data_file_is_nothing_but_frames(tmp_path, writer, encoder):
    block = encoder.bodies([b"a", b"bb"], 1)
    writer.append([block])

    assert writer.segment.data_path.read_bytes() == block.data


def test_one_flipped_bit_costs_its_append_and_nothing_else(writer, encoder):
    blocks = [encoder.bodies([b"message %d" % n] * 2, 1) for n in range(5)]
    writer.append(blocks)
    path = writer.segment.data_path
    content = bytearray(path.read_bytes())
    content[len(blocks[0].data) * 2 + 40] ^= 1
    path.write_bytes(content)

    found, damaged = writer.segment.read_page(0)

    assert [(block.first, block.next) for block in found] == [(FIRST, FIRST + 4), (FIRST + 6, FIRST + 10)]
    assert [(entry.first, entry.next) for entry in damaged] == [(FIRST + 4, FIRST + 6)]


def test_a_flipped_bit_in_the_index_is_noticed_too(tmp_path, writer, encoder):
    writer.append([encoder.bodies([b"a"], 1), encoder.bodies([b"b"], 1)])
    path = writer.segment.index_path
    content = bytearray(path.read_bytes())
    content[len(MAGIC) + 2 * ENTRY_BYTES - 10] ^= 1
    path.write_bytes(content)

    segment, _, torn, _ = recovered(tmp_path)

    assert (segment.next, torn) == (FIRST + 1, True)


def test_pages_lead_to_every_message(writer, encoder):
    for _ in range(40):
        writer.append([encoder.bodies([b"x" * 40_000], 1)])
    segment = writer.segment
    assert segment.pages > 1
    assert all(segment.page_size(page) >= PAGE_BYTES for page in range(segment.pages - 1))

    for seq in range(FIRST, FIRST + 40):
        blocks, _ = segment.read_page(segment.page_of(seq))
        assert any(block.first <= seq < block.next for block in blocks)


def test_a_gap_in_the_sequence_divides_blocks(writer, encoder):
    writer.append([encoder.bodies([b"a"], 1)])
    encoder.skip_to(FIRST + 5)
    writer.append([encoder.bodies([b"b"], 1)])

    blocks, _ = writer.segment.read_page(0)

    assert [(block.first, block.next) for block in blocks] == [(FIRST, FIRST + 1), (FIRST + 5, FIRST + 6)]
