"""Histograms of times."""

import pytest

from load.latency import Histogram


def test_percentiles_are_right_to_bucket():
    histogram = Histogram()
    for milliseconds in range(1, 1001):
        histogram.record(milliseconds)

    for percent in (50, 99, 99.9):
        assert histogram.percentile(percent) == pytest.approx(percent * 10, rel=0.03)
    assert histogram.longest() == pytest.approx(1000, rel=0.03)


def test_histograms_of_workers_add_up():
    one, other = Histogram(), Histogram()
    one.record(1.0, 3)
    other.record(100.0)
    both = Histogram(one.buckets())
    both.merge(other.buckets())

    assert len(both) == 4
    assert both.percentile(75) == pytest.approx(1.0, rel=0.03)
    assert both.longest() == pytest.approx(100.0, rel=0.03)


def test_stall_of_closed_loop_counts_for_unasked_requests():
    plain, corrected = Histogram(), Histogram()
    for histogram in (plain, corrected):
        histogram.record(1.0, 1000)
    plain.record(1000.0)
    corrected.record_closed_loop(1000.0, 1.0)

    assert plain.percentile(99) == pytest.approx(1.0, rel=0.03)
    assert corrected.percentile(99) == pytest.approx(980.0, rel=0.03)


def test_empty_histogram_has_no_percentile():
    assert (Histogram().percentile(99), Histogram().longest(), len(Histogram())) == (0.0, 0.0, 0)
