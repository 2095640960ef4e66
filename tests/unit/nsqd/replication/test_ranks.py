from hypothesis import given
from hypothesis import strategies as st

from nsqd.log.ranges import merged
from nsqd.replication.ranks import HOME, given_out

some_ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=6).map(
    lambda pairs: merged([(start, start + size) for start, size in pairs])
)


def numbers(ranges):
    return {seq for start, end in ranges for seq in range(start, end)}


@given(
    st.lists(st.tuples(st.integers(1, 9), some_ranges), min_size=1, max_size=4, unique_by=lambda one: one[0])
)
def test_those_who_reach_each_other_give_out_each_message_once(holders):
    out = [numbers(given_out(rank, held, holders)) for rank, held in holders]

    assert set().union(*out) == set().union(*(numbers(held) for _, held in holders))
    assert sum(map(len, out)) == len(set().union(*out))


def test_the_home_gives_out_all_it_has():
    assert given_out(HOME, [(1, 9)], [(3, [(1, 20)])]) == [(1, 9)]


def test_a_keeper_gives_out_what_the_home_has_lost():
    assert given_out(3, [(1, 20)], [(HOME, [(1, 9)])]) == [(9, 20)]


def test_a_later_appointment_is_above_an_earlier_one():
    assert given_out(3, [(1, 20)], [(4, [(10, 30)])]) == [(1, 10)]
    assert given_out(4, [(10, 30)], [(3, [(1, 20)])]) == [(10, 30)]
