"""The figures of nsq_stat without a cluster."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtools.nsq_stat.figures import HEAD, Figures, line, rates, total

counts = st.integers(min_value=0, max_value=10**12)


def test_the_columns_stand_as_the_original_puts_them():
    figures = Figures(depth=0, in_flight=0, deferred=16, requeued=270, timed_out=0, messages=13500, clients=3)

    assert HEAD + line(figures, 30, 30) == (
        "------rate------+----------------depth----------------+--------------metadata---------------\n"
        "ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients\n"
        "     30      30 |       0       0       0     0    16 |     270       0        13500       3\n"
    )


def test_what_is_not_on_disk_is_in_memory():
    assert line(Figures(depth=100, backend_depth=30), 0, 0).split()[3:6] == ["100", "70", "30"]


def test_the_sum_covers_every_column():
    one, two = Figures(1, 2, 3, 4, 5, 6, 7, 8), Figures(10, 20, 30, 40, 50, 60, 70, 80)

    assert total({"a": one, "b": two}) == Figures(11, 22, 33, 44, 55, 66, 77, 88)


def test_rates_are_per_second_that_passed():
    before, now = {"a": Figures(messages=100, depth=10)}, {"a": Figures(messages=160, depth=40)}

    assert rates(before, now, 2.0) == (30, 15)


def test_an_interval_a_little_longer_than_asked_for_does_not_lower_the_rate():
    assert rates({"a": Figures()}, {"a": Figures(messages=60)}, 2.0008) == (30, 30)


def test_an_nsqd_that_is_back_is_no_burst():
    one = Figures(messages=5)
    back = Figures(messages=1_000_000)

    assert rates({"a": one}, {"a": one, "b": back}, 1) == (0, 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Figures(messages=5_000_000, depth=1_000_000), Figures(messages=500, depth=1_000_400)),
        (Figures(messages=900, depth=4), Figures(messages=7, depth=7)),
        # A kill: the counter goes on from the last checkpoint.
        (Figures(messages=13_500_000), Figures(messages=13_499_900)),
    ],
)
def test_an_nsqd_whose_counter_fell_counts_again_in_the_next_round(old, new):
    steady, then = Figures(messages=10, depth=2), Figures(messages=30, depth=2)

    assert rates({"a": old, "b": steady}, {"a": new, "b": then}, 2) == (10, 10)
    later = replace(new, messages=new.messages + 8)
    assert rates({"a": new, "b": then}, {"a": later, "b": then}, 2) == (4, 4)


@given(st.dictionaries(st.sampled_from("abc"), st.tuples(counts, counts)))
def test_no_rate_of_arrival_is_ever_negative(rounds):
    before = {node: Figures(messages=old) for node, (old, _) in rounds.items()}
    now = {node: Figures(messages=new) for node, (_, new) in rounds.items()}

    assert rates(before, now, 1)[0] >= 0
