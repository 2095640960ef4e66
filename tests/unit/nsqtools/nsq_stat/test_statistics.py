"""The statistics of nsq_stat without a cluster."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtools.nsq_stat.statistics import HEAD, Statistics, line, rates, total

counts = st.integers(min_value=0, max_value=10**12)


def test_columns_stand_as_the_original_puts_them():
    statistics = Statistics(
        depth=0, in_flight=0, deferred=16, requeued=270, timed_out=0, messages=13500, clients=3
    )

    assert HEAD + line(statistics, 30, 30) == (
        "------rate------+----------------depth----------------+--------------metadata---------------\n"
        "ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients\n"
        "     30      30 |       0       0       0     0    16 |     270       0        13500       3\n"
    )


def test_depth_in_memory_is_depth_without_backend():
    assert line(Statistics(depth=100, backend_depth=30), 0, 0).split()[3:6] == ["100", "70", "30"]


def test_sum_covers_every_column():
    one, two = Statistics(1, 2, 3, 4, 5, 6, 7, 8), Statistics(10, 20, 30, 40, 50, 60, 70, 80)

    assert total({"a": one, "b": two}) == Statistics(11, 22, 33, 44, 55, 66, 77, 88)


def test_rates_are_per_second_that_passed():
    before, now = {"a": Statistics(messages=100, depth=10)}, {"a": Statistics(messages=160, depth=40)}

    assert rates(before, now, 2.0) == (30, 15)


def test_interval_little_longer_than_asked_for_does_not_lower_rate():
    assert rates({"a": Statistics()}, {"a": Statistics(messages=60)}, 2.0008) == (30, 30)


def test_nsqd_that_is_back_is_no_burst():
    one = Statistics(messages=5)
    back = Statistics(messages=1_000_000)

    assert rates({"a": one}, {"a": one, "b": back}, 1) == (0, 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Statistics(messages=5_000_000, depth=1_000_000), Statistics(messages=500, depth=1_000_400)),
        (Statistics(messages=900, depth=4), Statistics(messages=7, depth=7)),
        # A kill: the counter continues from the last checkpoint.
        (Statistics(messages=13_500_000), Statistics(messages=13_499_900)),
    ],
)
def test_nsqd_whose_counter_fell_counts_again_in_the_next_round(old, new):
    steady, then = Statistics(messages=10, depth=2), Statistics(messages=30, depth=2)

    assert rates({"a": old, "b": steady}, {"a": new, "b": then}, 2) == (10, 10)
    later = replace(new, messages=new.messages + 8)
    assert rates({"a": new, "b": then}, {"a": later, "b": then}, 2) == (4, 4)


@given(st.dictionaries(st.sampled_from("abc"), st.tuples(counts, counts)))
def test_rates_of_arrival_are_not_negative(rounds):
    before = {node: Statistics(messages=old) for node, (old, _) in rounds.items()}
    now = {node: Statistics(messages=new) for node, (_, new) in rounds.items()}

    assert rates(before, now, 1)[0] >= 0
