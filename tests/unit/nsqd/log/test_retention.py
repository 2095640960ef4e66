"""Which segments are removed, and which are merged. Sizes are in units; a full segment has 1000."""

from hypothesis import example, given
from hypothesis import strategies as st

from nsqd.log.retention import SegmentStats, is_enough, plan

FULL, WORTH = 1000, 100
TINY = 64 << 10


def extents(*wanted, size=1000, kind=0):
    return [SegmentStats(place, size, one, kind) for place, one in enumerate(wanted)]


def places(found):
    return [[extent.place for extent in run] for run in found]


def planned(found, *, resting=True, full=FULL, worth=WORTH):
    return places(plan(found, full, worth, resting=resting))


def big(*wanted):
    """Segments so large that none is merged with a neighbour for being small."""
    return [SegmentStats(place, 1000 * TINY, share * TINY, 0) for place, share in enumerate(wanted)]


def planned_big(found, *, resting=True):
    return planned(found, resting=resting, full=1000 * TINY, worth=100 * TINY)


def test_plan_is_empty_where_all_is_wanted():
    assert planned(extents(1000, 1000, 1000)) == []


def test_segments_of_which_nothing_is_wanted_go_though_older_one_is_held():
    assert planned_big(big(1000, 0, 0, 1000)) == [[1, 2]]


def test_sparse_segment_and_its_finished_neighbours_become_one():
    assert planned_big(big(1000, 2, 0, 0, 3, 1000)) == [[1, 2, 3, 4]]


def test_rest_of_earlier_compaction_joins_the_next_one():
    left = SegmentStats(0, 40, 40)
    assert planned([left, SegmentStats(1, 1000, 0)]) == [[0, 1]]


def test_full_segment_is_not_copied_to_be_rid_of_its_neighbour():
    assert planned_big(big(900, 0)) == [[1]]
    assert planned_big(big(0, 900)) == [[0]]


def test_file_is_no_larger_than_a_segment():
    runs = planned_big(big(400, 400, 400, 400))
    assert [place for run in runs for place in run] == [0, 1, 2, 3]
    assert all(len(run) == 2 for run in runs)


def test_logs_of_two_nodes_are_not_put_together():
    found = [SegmentStats(0, 1000, 0, kind=1), SegmentStats(1, 1000, 0, kind=2)]
    assert sorted(planned(found)) == [[0], [1]]


def test_segments_that_are_not_neighbours_are_not_put_together():
    found = [SegmentStats(0, 1000, 0), SegmentStats(2, 1000, 0)]
    assert sorted(planned(found)) == [[0], [2]]


def test_little_waste_in_small_segment_is_not_worth_it():
    assert planned([SegmentStats(0, 100, 20)]) == []
    assert planned([SegmentStats(0, 100, 0)]) == [[0]]


def test_plan_begins_with_most_waste_for_its_cost():
    assert planned_big(big(400, 1000, 0, 1000, 100)) == [[2], [4], [0]]


def test_waste_above_two_segments_is_compacted_where_most_is_wanted():
    # Each wastes a fifth. Ten waste two segments, which is allowed; eleven waste too much.
    assert planned_big(big(*[800] * 10)) == []
    assert len(planned_big(big(*[800] * 11))) == 1


def test_little_waste_stays_until_log_rests():
    assert planned_big(big(*[950] * 60), resting=False) == []
    copied = planned_big(big(*[950] * 60), resting=True)
    assert sum(map(len, copied)) == 20


def test_busy_log_is_compacted_only_above_allowed_waste():
    assert planned_big(big(100, 1000, 100, 1000), resting=False) == []
    assert planned_big(big(100, 0, 1000), resting=False) == [[1]]
    assert planned_big(big(100, 1000, 100, 1000, 100), resting=False) == [[0], [2], [4]]
    assert planned_big(big(100, 1000, 100, 1000), resting=True) == [[0], [2]]


def test_compaction_is_checked_above_allowed_bytes_or_at_rest():
    assert not is_enough(2 * FULL, FULL, resting=False)
    assert is_enough(2 * FULL + 1, FULL, resting=False)
    assert is_enough(1, FULL, resting=True)
    assert not is_enough(0, FULL, resting=True)


shares = st.lists(st.tuples(st.integers(0, 2000), st.floats(0, 1)), max_size=30)


@given(shares, st.booleans())
@example([(1777, 0.625), (1777, 0.625), (0, 0.0), (1777, 0.625)], False)
def test_planned_compaction_takes_neighbours_and_leaves_little_waste(shares, resting):
    found = [SegmentStats(place, size, int(size * share)) for place, (size, share) in enumerate(shares)]

    for _ in range(200):
        runs = plan(found, FULL, WORTH, resting=resting)
        if not runs:
            break
        run = runs[0]
        wanted = sum(one.wanted for one in run)
        first = found.index(run[0])
        assert found[first : first + len(run)] == run
        # The result fits into a full segment, unless one segment of the run was larger already.
        assert wanted <= max(FULL, *(one.wanted for one in run))
        assert sum(one.waste for one in run) > 0
        found[first : first + len(run)] = [SegmentStats(0, wanted, wanted)]
        found = [SegmentStats(place, one.size, one.wanted) for place, one in enumerate(found)]
    else:
        raise AssertionError("it never comes to an end")
    left = [one for one in found if resting or one.sparse >= 1 / 8]
    assert sum(one.waste for one in left) <= 2 * FULL
