"""The messages that a log has, or had."""

import pytest

from nsqd.log.gaps import Gap, Why
from nsqd.log.tail import MAX_REMEMBERED_RANGES, StoredRanges


@pytest.mark.parametrize(
    ("skipped", "removed", "end", "ranges"),
    [
        ([(20, 30), (35, 40)], [], 41, [(10, 20), (30, 35), (40, 41)]),
        ([(20, 30), (20, 40)], [], 20, [(10, 20)]),
        ([(20, 30), (20, 40)], [], 45, [(10, 20), (40, 45)]),
        ([(20, 30)], [(12, 14), (18, 32), (40, 41)], 50, [(10, 12), (14, 18), (32, 40), (41, 50)]),
        ([], [(15, 20)], 20, [(10, 15)]),
        ([], [(15, 20)], 22, [(10, 15), (20, 22)]),
    ],
)
def test_stored_ranges_lack_skipped_and_removed_numbers(skipped, removed, end, ranges):
    stored_ranges = StoredRanges(10)
    for part in skipped:
        stored_ranges.resume_at(*part)
    for part in removed:
        stored_ranges.remove(*part)

    assert stored_ranges.ranges(end) == ranges


def test_numbers_below_remembered_ranges_are_not_called_unused():
    stored_ranges = StoredRanges(0)
    for number in range(MAX_REMEMBERED_RANGES + 1):
        stored_ranges.resume_at(10 * number + 5, 10 * number + 10)

    gap = Gap(0, 30, Why.COMPACTED)
    assert stored_ranges.part_of(gap, 0) == Gap(0, 15, Why.COMPACTED)
    assert stored_ranges.part_of(gap, 15) == Gap(15, 20, Why.UNUSED)


def test_stored_ranges_are_reset_below_first():
    stored_ranges = StoredRanges(0)
    stored_ranges.reset([(5, 9), (1, 3), (8, 100)], 50)

    assert stored_ranges.ranges(60) == [(1, 3), (5, 60)]


def test_newest_stored_ranges_are_remembered():
    stored_ranges = StoredRanges(0)
    for life in range(2 * MAX_REMEMBERED_RANGES):
        stored_ranges.resume_at(life * 10 + 5, life * 10 + 10)

    assert len(stored_ranges.closed) == MAX_REMEMBERED_RANGES
    assert stored_ranges.closed[-1] == (
        (2 * MAX_REMEMBERED_RANGES - 1) * 10,
        (2 * MAX_REMEMBERED_RANGES - 1) * 10 + 5,
    )


@pytest.mark.parametrize(
    ("seq", "part"),
    [
        (0, Gap(0, 10, Why.UNUSED)),
        (4, Gap(4, 10, Why.UNUSED)),
        (12, Gap(12, 20, Why.COMPACTED)),
        (33, Gap(33, 35, Why.COMPACTED)),
        (40, Gap(40, 48, Why.COMPACTED)),
    ],
)
def test_compacted_gap_is_unused_where_no_message_was_stored(seq, part):
    stored_ranges = StoredRanges(40)
    stored_ranges.reset([(10, 20), (30, 35)], 40)

    assert stored_ranges.part_of(Gap(0, 48, Why.COMPACTED), seq) == part
