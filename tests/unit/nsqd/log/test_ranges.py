"""Ranges and sets of positions, compared with plain sets of numbers."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.log.ranges import PAGE, RangeSet, merged, ranges_of, size_of, within

# Node ids from 512 on set the highest bit of a position.
BASES = [0, 5 * PAGE - 7, (1 << 63) - PAGE - 3, (1 << 64) - 5 * PAGE]
ends = st.integers(0, 4 * PAGE)
spans = st.tuples(ends, st.one_of(st.integers(1, 20), st.integers(1, 2 * PAGE)))


def positions(ranges):
    return {position for start, end in ranges for position in range(start, end)}


def test_ranges_that_touch_or_overlap_become_one():
    assert merged([(5, 7), (1, 3), (3, 5), (9, 9), (6, 8)]) == [(1, 8)]


def test_within_gives_parts_inside_bounds():
    assert within([(1, 4), (6, 9), (12, 13)], 3, 8) == [(3, 4), (6, 8)]


@given(
    st.sampled_from(BASES),
    st.lists(st.one_of(spans, st.lists(ends, min_size=1, max_size=30), st.none()), max_size=25),
    spans,
)
def test_set_has_the_added_positions(base, steps, asked):
    found, model = RangeSet(base), set()
    for step in steps:
        if step is None:
            # Nothing is added to a page between two checkpoints, so it is packed.
            found.take_changed()
            found.take_changed()
        elif isinstance(step, tuple):
            found.add(base + step[0], base + sum(step))
            model |= set(range(step[0], sum(step)))
        elif len(step) == 1:
            found.add_one(base + step[0])
            model |= set(step)
        else:
            found.add_all([base + position for position in step])
            model |= set(step)
    start, end = asked[0], sum(asked)
    stop = min(end, ((base + start) // PAGE + 1) * PAGE - base)
    missing = found.missing(base + start, base + end)

    assert positions((low - base, high - base) for low, high in missing) == set(range(start, end)) - model
    assert missing == merged(missing)
    assert found.copy().count_missing(base + start, base + end) == size_of(missing)
    assert found.floor == base + next(position for position in range(7 * PAGE) if position not in model)
    assert list(found.column(base + start, base + stop)) == [one in model for one in range(start, stop)]
    for position in (start, stop - 1, end, 0, PAGE - 1, PAGE):
        assert (base + position in found) == (position in model)


long_spans = st.tuples(
    st.integers(0, 60 * PAGE),
    st.one_of(
        st.integers(1, 20), st.integers(1, 2 * PAGE), st.integers(15 * PAGE, 40 * PAGE), st.just(1 << 50)
    ),
)


@given(
    st.lists(long_spans, max_size=8),
    st.lists(st.integers(0, 60 * PAGE), max_size=8),
    st.tuples(ends, st.integers(1, 90 * PAGE)),
)
def test_long_ranges_behave_like_short_ones(added, single, asked):
    found = RangeSet(1000)
    ranges = [(0, 1000)]
    for start, length in added:
        found.add(start, start + length)
        ranges.append((start, start + length))
    found.add_all(sorted(single))
    ranges = merged(ranges + [(one, one + 1) for one in single])
    start, end = max(asked[0], 1000), asked[0] + asked[1] + 1000
    present = within(ranges, start, end)

    edges = [start, *(edge for pair in present for edge in pair), end]

    between = [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]
    assert found.missing(start, end) == between
    assert found.copy().missing(start, end) == between
    assert found.count_missing(start, end) == size_of(between)
    assert found.floor == ranges[0][1]
    for low, high in ranges:
        assert (low in found, high - 1 in found, high in found) == (True, True, False)


def test_numbers_that_restart_skipped_cost_nothing_however_many_they_are():
    found = RangeSet(1000)
    month_later = 30 * 86_400 * 1_000_000

    found.add(2000, month_later)
    found.add(month_later, month_later + 1)

    assert found.missing(0, month_later + 5) == [(1000, 2000), (month_later + 1, month_later + 5)]
    assert found.count_missing(0, month_later + 5) == 1004
    assert len(found.pages()) <= 2
    found.add(1000, 2000)
    assert (found.floor, len(found.pages()), found.runs) == (month_later + 1, 1, [])


@given(st.lists(spans, max_size=12), st.lists(spans, max_size=6))
def test_copy_from_its_pages_and_later_changes_is_the_same_set(before, after):
    found = RangeSet()
    for start, length in before:
        found.add(start, start + length)
    found.take_changed()
    copy = RangeSet()
    for number in found.pages():
        copy.set_page(number, found.page(number))
    copy.raise_floor(found.floor)
    for start, length in after:
        found.add(start, start + length)

    for number in found.take_changed() & found.pages():
        copy.set_page(number, found.page(number))
    copy.raise_floor(found.floor)

    assert copy.floor == found.floor
    assert copy.missing(0, 8 * PAGE) == found.missing(0, 8 * PAGE)


@pytest.mark.parametrize(("apart", "limit"), [(100, 6), (8000, 40)])
def test_set_takes_memory_for_its_missing_ranges_and_not_for_its_positions(apart, limit):
    tracemalloc.start()
    found = RangeSet(0)
    count = 100 * PAGE // apart
    for start in range(0, count * apart, apart):
        found.add(start + 1, start + apart)
        if not start % (40 * apart):
            found.take_changed()
    found.take_changed()
    found.take_changed()
    size, _ = tracemalloc.get_traced_memory()
    copy = found.copy()
    both, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    # A page of 8,192 positions has an entry as well.
    assert size < limit * count + 300 * 100
    assert both - size < 120 * 100
    assert copy.count_missing(0, count * apart) == count


def test_finished_messages_above_held_one_take_little_memory():
    found = RangeSet(0)
    for start in range(1, 100 * PAGE, 100):
        found.add(start, start + 100)

    assert sum(len(found.page(number)) for number in found.pages()) <= 2 * PAGE // 8


def test_page_of_another_size_is_refused():
    with pytest.raises(ValueError, match="7 bytes"):
        RangeSet().set_page(1, b"x" * 7)


@given(st.sets(st.integers(0, 30)))
def test_sorted_positions_as_ranges_are_the_same_positions(chosen):
    found = ranges_of(sorted(chosen))

    assert positions(found) == chosen
    assert found == merged(found)
    assert size_of(found) == len(chosen)
