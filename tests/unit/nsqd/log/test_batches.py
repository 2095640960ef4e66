import struct

import pytest

from nsqd.log.encoder import MAX_EVEN, MIN_EVEN, Batch, even_batch

MOST = 100_000


def mpub(bodies):
    return b"".join(struct.pack(">I", len(body)) + body for body in bodies)


def test_messages_of_one_size_stay_where_they_are_until_they_are_asked_for():
    bodies = [b"%04d" % n for n in range(40)]

    batch = even_batch(b"before" + mpub(bodies) + b"behind", 6, 40, MOST)

    assert batch is not None
    assert (batch.count, batch.size, batch.stride) == (40, 160, 8)
    assert list(batch.bodies) == bodies


def test_bodies_are_counted_and_measured():
    batch = Batch([b"a", b"bb", b"ccc"])

    assert (batch.count, batch.size, batch.stride) == (3, 6, 0)


@pytest.mark.parametrize("odd", [0, 1, 39])
@pytest.mark.parametrize("size", [1, 67, 65, 66 + 256, 66 + 65536])
def test_batch_of_different_sizes_is_left_to_slow_way(odd, size):
    bodies = [b"x" * 66] * 40
    bodies[odd] = b"x" * size

    # Enough bytes follow for 40 bodies of the first size.
    assert even_batch(mpub(bodies) + b"x" * 40 * (size + 66), 0, 40, MOST) is None


@pytest.mark.parametrize("count", [1, MIN_EVEN - 1, MAX_EVEN + 1])
def test_batch_that_is_short_or_long_is_left_to_slow_way(count):
    assert even_batch(mpub([b"a"] * count), 0, count, MOST) is None


def test_batch_that_runs_past_the_end_is_left_to_slow_way():
    assert even_batch(mpub([b"aaaa"] * 40)[:-1], 0, 40, MOST) is None
    assert even_batch(b"abc", 0, 40, MOST) is None


@pytest.mark.parametrize("size", [0, -1, 5])
def test_size_that_is_not_legal_is_left_to_slow_way(size):
    assert even_batch(struct.pack(">i", size) * 400, 0, 40, 4) is None
