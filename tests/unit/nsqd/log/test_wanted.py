"""The positions of a log that are wanted, compared with plain sets of numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.log.gaps import EVERYTHING
from nsqd.log.ranges import PAGE, RangeSet, merged, size_of
from nsqd.log.retention import WantedPositions

# Node ids from 512 on set the highest bit of a position.
BASES = [0, 5 * PAGE - 7, (1 << 63) - PAGE - 3, EVERYTHING - 25 * PAGE]
ends = st.integers(0, 4 * PAGE)
spans = st.tuples(ends, st.one_of(st.integers(1, 20), st.integers(1, 2 * PAGE)))
owners = st.lists(st.tuples(st.lists(spans, max_size=8), ends), max_size=3)


@given(st.sampled_from(BASES), owners, st.one_of(st.none(), ends), spans)
def test_wanted_has_unfinished_and_retained_messages(base, owners, log_start, asked):
    start, length = asked
    backlogs, model = [], set()
    for finished, end in owners:
        found = RangeSet(base)
        there = set(range(end))
        for low, count in finished:
            found.add(base + low, base + low + count)
            there -= set(range(low, low + count))
        backlogs.append((found, base + end))
        model |= there
    if log_start is not None:
        model |= set(range(log_start, start + length))
    wanted = WantedPositions(backlogs, EVERYTHING if log_start is None else base + log_start)
    model &= set(range(start, start + length))

    ranges = wanted.ranges(base + start, base + start + length)

    assert {position - base for low, high in ranges for position in range(low, high)} == model
    assert ranges == merged(ranges)
    count, runs = wanted.totals(base + start, base + start + length)
    assert count == len(model) == size_of(ranges)
    # A range that crosses the end of a page of positions may count twice.
    assert len(ranges) <= runs <= len(ranges) + length // PAGE + 2


@pytest.mark.parametrize("backlogs", [[], [(RangeSet(7), 7)]])
def test_wanted_is_empty_when_all_is_finished(backlogs):
    wanted = WantedPositions(backlogs)

    assert wanted.ranges(0, EVERYTHING) == []
    assert wanted.totals(0, EVERYTHING) == (0, 0)


def test_numbers_that_restart_has_skipped_are_not_looked_at_one_by_one():
    finished = RangeSet()
    finished.add(3, 1 << 60)
    wanted = WantedPositions([(finished, (1 << 60) + 2)])

    assert wanted.ranges(0, EVERYTHING) == [(0, 3), (1 << 60, (1 << 60) + 2)]
    assert wanted.totals(0, EVERYTHING) == (5, 2)
