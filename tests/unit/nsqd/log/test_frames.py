import struct

import pytest

from nsqclient.wire.frames import FrameParser
from nsqd.log.encoder import MIN_EVEN, Batch, Encoder, even_batch
from nsqd.log.frames import FRAME_OVERHEAD, parse_block, with_attempts, with_attempts_all, with_attempts_each
from nsqd.log.ids import MessageIds

IDS = MessageIds(5)
NOW = 1_700_000_000_000_000_000


def mpub(bodies):
    return b"".join(struct.pack(">I", len(body)) + body for body in bodies)


def even(bodies):
    batch = even_batch(mpub(bodies), 0, len(bodies), len(bodies[0]))
    assert batch is not None
    return batch


def messages(data):
    """(timestamp, attempts, id, body) of each frame."""
    return [
        (*struct.unpack_from(">qH", message), message[10:26], message[26:])
        for _, message in FrameParser().feed(data)
    ]


@pytest.mark.parametrize("first", [0, 0xFFD8, 0xFFFE, 0xFFFF, 0x1FFFF0])
def test_encoders_give_the_same_frames(first):
    bodies = [b"%04d" % n for n in range(40)]
    one_by_one, listed = (Encoder(IDS, first) for _ in range(2))
    for body in bodies:
        one_by_one.put(body, NOW)
    blocks = [one_by_one.close(), listed.batch(Batch(bodies), NOW)]

    assert all(block.data == blocks[0].data for block in blocks)
    assert [encoder.next_seq for encoder in (one_by_one, listed)] == [first + 40] * 2
    assert messages(blocks[0].data) == [
        (NOW, 1, IDS.encode(first + n), body) for n, body in enumerate(bodies)
    ]


@pytest.mark.parametrize("size", [1, 4, 66, 255, 256, 70_000])
@pytest.mark.parametrize("count", [MIN_EVEN, 40, 200])
@pytest.mark.parametrize("first", [0, 7, 0x12FFFF - 200, 0xABCDEF0000])
def test_batch_of_equal_sizes_gives_the_same_frames(size, count, first):
    bodies = [(b"%04d" % n * (size // 4 + 1))[:size] for n in range(count)]
    batch, listed = Encoder(IDS, first), Encoder(IDS, first)

    found = even_batch(b"before" + mpub(bodies) + b"behind", 6, count, size)
    assert found is not None
    block = batch.batch(found, NOW)

    assert block.data == listed.batch(Batch(bodies), NOW).data
    assert (block.first, block.next, batch.next_seq) == (first, first + count, first + count)
    assert (
        block.frames(first + 1, first + 3)
        == block.data[size + FRAME_OVERHEAD :][: 2 * (size + FRAME_OVERHEAD)]
    )


@pytest.mark.parametrize("first", [0xFFFF - 38, 0xFFFF])
def test_batch_across_id_prefixes_gives_the_same_frames(first):
    bodies = [b"aaaa"] * 40

    block = Encoder(IDS, first).batch(even(bodies), NOW)

    assert block.data == Encoder(IDS, first).batch(Batch(bodies), NOW).data


def test_block_gives_any_range_of_frames():
    bodies = [b"x" * n for n in range(1, 30)]
    block = Encoder(IDS, 100).batch(Batch(bodies), NOW)

    assert block.frames(100, 129) is block.data
    for start in range(100, 129):
        for end in range(start + 1, 130):
            assert [m[3] for m in messages(block.frames(start, end))] == bodies[start - 100 : end - 100]


def test_fitting_never_gives_nothing_and_never_more_than_fits():
    block = Encoder(IDS, 100).batch(Batch([b"x" * 66] * 10), NOW)
    size = 66 + FRAME_OVERHEAD

    assert block.fitting(100, 110, 1) == 101
    assert block.fitting(100, 110, 3 * size) == 103
    assert block.fitting(102, 110, 3 * size + 1) == 105
    assert block.fitting(100, 104, 100 * size) == 104


def test_fitting_of_equal_frames_counts_from_start_asked_for():
    block = Encoder(IDS, 100).batch(even([b"x" * 66] * 40), NOW)
    size = 66 + FRAME_OVERHEAD

    assert block.fitting(104, 140, 2 * size) == 106
    assert block.fitting(139, 140, 1) == 140


def test_block_read_back_knows_its_frames():
    written = Encoder(IDS, 7).batch(Batch([b"a", b"bb" * 500, b"c"]), NOW)
    read = parse_block(7, written.data)

    assert (read.first, read.next) == (7, 10)
    assert [read.offset(seq) for seq in range(7, 11)] == [written.offset(seq) for seq in range(7, 11)]
    assert read.timestamp_ns(9) == NOW


@pytest.mark.parametrize("cut", [1, 20, 33])
def test_block_with_half_a_frame_is_refused(cut):
    data = Encoder(IDS, 7).batch(Batch([b"a", b"b"]), NOW).data

    with pytest.raises(ValueError, match="frames end at"):
        parse_block(7, data[:-cut])


def test_attempts_are_patched_and_stop_at_what_sixteen_bits_can_say():
    frame = Encoder(IDS, 7).batch(Batch([b"body"]), NOW).data

    assert messages(with_attempts(frame, 3)) == [(NOW, 3, IDS.encode(7), b"body")]
    assert messages(with_attempts(frame, 70_000))[0][1] == 65_535


@pytest.mark.parametrize("sizes", [(3, 3, 3), (3, 4, 3), (3,)])
@pytest.mark.parametrize("counts", [(2, 2, 2), (2, 3, 700), (70_000, 70_000, 70_000)])
def test_frames_carry_their_own_attempts(sizes, counts):
    block = Encoder(IDS, 7).batch(Batch([b"x" * size for size in sizes]), NOW)
    frames = [block.view(seq, seq + 1) for seq in range(block.first, block.next)]

    data = with_attempts_each(frames, list(counts[: len(frames)]))

    assert data == b"".join(map(with_attempts, frames, counts))


@pytest.mark.parametrize("sizes", [(3, 3, 3, 3), (3, 5, 1, 3), (1, 3), (3,)])
def test_frames_of_one_size_are_patched_together_and_others_are_not(sizes):
    block = Encoder(IDS, 7).batch(Batch([b"x" * size for size in sizes]), NOW)
    frames = [block.view(seq, seq + 1) for seq in range(block.first, block.next)]
    again = b"".join(with_attempts(frame, 2) for frame in frames)

    assert with_attempts_all(block.data, [2] * len(sizes)) == (again if len(set(sizes)) == 1 else b"")
    assert not with_attempts_all(block.data * 2, [2, 3] * len(sizes))


def test_block_says_when_its_messages_are_due_and_the_next_one_does_not():
    encoder = Encoder(IDS, 7)
    encoder.due_ns = NOW + 5
    encoder.put(b"later", NOW)
    encoder.put(b"later too", NOW)
    block = encoder.close()
    encoder.put(b"now", NOW)

    assert (len(block), block.due_ns, encoder.close().due_ns) == (2, NOW + 5, 0)


@pytest.mark.parametrize("sizes", [(4, 4, 4), (4, 4, 5), (4, 5, 4), (5, 4, 4), (4, 5, 5, 4, 4)])
def test_frames_of_one_size_or_several_are_found_alike(sizes):
    encoder = Encoder(IDS, 7)
    bodies = [bytes([place]) * size for place, size in enumerate(sizes)]
    for body in bodies:
        encoder.put(body, NOW)
    block = encoder.close()

    found = [block.frames(seq, seq + 1) for seq in range(block.first, block.next)]
    assert found == [parse_block(7, block.data).frames(seq, seq + 1) for seq in range(7, block.next)]
    assert [one[-len(body) :] for one, body in zip(found, bodies, strict=True)] == bodies


def test_numbers_that_were_not_stored_are_not_used_again():
    encoder = Encoder(IDS, 7)
    encoder.put(b"lost", NOW)
    encoder.close()
    encoder.put(b"kept", NOW)

    assert encoder.close().first == 8
