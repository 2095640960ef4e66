"""Sets of numbers as ranges, against Python's own sets."""

from hypothesis import given
from hypothesis import strategies as st

from load.numbers import NumberSet, count, each, ranges_of

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)).map(lambda r: [r[0], r[0] + r[1]]))


@given(RANGES)
def test_set_of_ranges_is_set_of_their_numbers(ranges):
    numbers, model = NumberSet(), set()
    for first, end in ranges:
        again = numbers.add(first, end)

        assert sorted(each(again)) == sorted(model & set(range(first, end)))
        model |= set(range(first, end))
    assert list(each(numbers.ranges())) == sorted(model)
    assert len(numbers) == len(model)
    assert all((number in numbers) == (number in model) for number in range(50))


@given(RANGES, RANGES, RANGES)
def test_set_without_others_has_the_remaining_numbers(ranges, others, more):
    kept = NumberSet(ranges).without(NumberSet(others), NumberSet(more))

    assert list(each(kept)) == sorted(set(each(ranges)) - set(each(others)) - set(each(more)))


@given(st.lists(st.integers(0, 30)))
def test_numbers_become_ranges_that_have_each_as_often(numbers):
    ranges = ranges_of(numbers)

    assert sorted(each(ranges)) == sorted(numbers)
    assert count(ranges) == len(numbers)


def test_neighbours_become_one_range():
    numbers = NumberSet([[0, 5], [5, 9], [12, 13]])

    assert numbers.ranges() == [[0, 9], [12, 13]]
