"""The lines about how long requests take."""

from hypothesis import given
from hypothesis import strategies as st

from nsqtools.timing import Timings, percentile


def lines(timings: Timings, times) -> list[str]:
    return [line for seconds in times if (line := timings.add(seconds))]


def test_line_comes_once_more_than_so_many_are_in_and_then_for_each_so_many():
    timings = Timings(10, "[aggregate]:")

    assert len(lines(timings, [0.001] * 10)) == 0
    assert len(lines(timings, [0.001] * 59)) == 6


def test_line_reads_as_in_the_original():
    timings = Timings(4, "[aggregate]:")

    assert lines(timings, [1, 0.00306, 0.001, 0.001, 0.0025]) == [
        "[aggregate]: finished 4 - 99th: 3.06ms - 95th: 3.06ms - avg: 1.89ms"
    ]


def test_zero_switches_lines_off():
    assert lines(Timings(0, ""), [1] * 1000) == []


@given(st.lists(st.floats(0, 100), min_size=1), st.integers(0, 100))
def test_percentile_is_one_of_values_and_bounds_its_share(values, percent):
    ordered = sorted(values)

    bound = percentile(ordered, percent)

    assert bound in values
    assert sum(value <= bound for value in values) * 100 >= percent * len(values)
