"""The bytes that a client has sent are cut so that no portion takes long."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.server.read_quantum import FIRST, LONG_NS, MAX_BYTES, MIN_BYTES, ReadQuantum

MS = 1_000_000


def test_first_portion_has_fixed_size():
    read_quantum = ReadQuantum()
    read_quantum.add(b"x" * MAX_BYTES)

    assert len(read_quantum.take()) == FIRST


def test_portion_size_follows_processing_time():
    read_quantum = ReadQuantum()
    sizes = []
    # The first portion may have taken long because of other processes.
    for ns in (8 * MS, 8 * MS, 1 * MS, 100 * MS, 1000, 1000, *[1000] * 10):
        read_quantum.add(b"x" * 4 * MAX_BYTES)
        portion = read_quantum.take()
        sizes.append(len(portion))
        read_quantum.took(len(portion), ns)
        read_quantum.take_all()

    # A quarter (2 ms of 8), the same, the least size; then each is twice as large, up to everything.
    assert sizes[:6] == [FIRST, FIRST, FIRST // 4, FIRST // 4, MIN_BYTES, 2 * MIN_BYTES]
    assert sizes[-1] == 4 * MAX_BYTES


def test_time_of_processor_is_asked_for_from_long_portion_to_short_one():
    read_quantum = ReadQuantum()
    watched = []
    for ns in (1000, 8 * MS, 1 * MS, 8 * MS, 1000, 1000):
        read_quantum.took(100, ns)
        watched.append(read_quantum.watched)

    assert watched == [False, True, True, True, False, False]


def test_portion_that_is_all_there_is_is_no_copy():
    read_quantum, data = ReadQuantum(), b"x" * MIN_BYTES
    read_quantum.add(data)

    assert read_quantum.take() is data
    assert not read_quantum


def test_short_read_that_was_fast_says_nothing_of_long_ones():
    read_quantum = ReadQuantum()
    for _ in range(20):
        read_quantum.took(100, 1000)
    read_quantum.add(b"x" * MAX_BYTES)

    assert len(read_quantum.take()) == FIRST


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=3 * MIN_BYTES).map(lambda data: ("put", data)),
            st.integers(0, 20 * LONG_NS).map(lambda ns: ("take", ns)),
        )
    )
)
def test_portions_keep_bytes_in_order(steps):
    read_quantum, given_, taken = ReadQuantum(), b"", b""
    for what, value in steps:
        if what == "put":
            read_quantum.add(value)
            given_ += value
        elif read_quantum:
            portion = read_quantum.take()
            read_quantum.took(len(portion), value)
            taken += portion
            assert portion
    assert bool(read_quantum) is (taken != given_)
    assert taken + read_quantum.take_all() == given_
    assert not read_quantum


def test_read_below_what_is_whole_teaches_nothing_unless_it_takes_long():
    read_quantum = ReadQuantum()
    sizes = []
    for size, ns in ((FIRST, 1000), (FIRST, 8 * MS), (FIRST, 8 * MS), (MIN_BYTES, 1 * MS), (MIN_BYTES, 1000)):
        read_quantum.took(size, ns)
        sizes.append(read_quantum.whole)

    # Twice as much at first, and 0 while the processor time is measured.
    assert sizes == [2 * FIRST, 0, 0, 0, FIRST // 4]
    before = read_quantum.take_all(), read_quantum.watched
    read_quantum.took(read_quantum.whole - 1, 1000)
    assert (read_quantum.whole, (read_quantum.take_all(), read_quantum.watched)) == (FIRST // 4, before)
