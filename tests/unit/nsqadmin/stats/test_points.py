import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqadmin.stats.points import SIZE, UNKNOWN, Point, average

RATES = st.none() | st.floats(0, 4e9)


@given(st.none() | st.integers(0, 2**31 - 1), RATES, RATES, RATES, RATES)
def test_point_comes_back_as_it_was_within_thousandth(depth, came, went, age_s, more):
    point = Point(depth, came, went, age_s, more)

    back = Point.unpack(point.pack())

    assert len(point.pack()) == SIZE
    assert back.depth == depth
    for have, want in ((back.published, came), (back.finished, went), (back.age_s, age_s), (back.more, more)):
        assert (have is None) == (want is None)
        if want is not None:
            assert have == pytest.approx(want, rel=0.001, abs=0.001)


def test_oversized_value_is_stored_as_largest():
    assert Point.unpack(Point(2**40, published=1e30).pack()).depth == 2**31 - 1
    assert Point.unpack(UNKNOWN.pack()) == UNKNOWN


def test_several_points_become_one():
    one = average([Point(5, 1.0, None, 3.0), Point(9, 3.0, 2.0, None), UNKNOWN])

    assert one == Point(9, 2.0, 2.0, 3.0)
    assert average([]) == UNKNOWN


def test_partial_point_keeps_its_mark_and_depth():
    for depth in (0, 7, 2**31 - 2):
        point = Point(depth, is_partial=True)

        assert Point.unpack(point.pack()) == point
    assert Point.unpack(Point(is_partial=True).pack()) == Point()
