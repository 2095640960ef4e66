"""What a batch consists of: fair shares, no repetition, no hole, and the same again from the same offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.source.bounds import Bounds
from pipelines.source.errors import DataLossError
from pipelines.source.planner import LogRange, next_offsets, plan_ranges, share


def log(first, end):
    return Bounds(first, end, ((first, end),) if first < end else (), {})


def plan(start, bounds, limit=None, *, fail_on_data_loss=True):
    return next_offsets(start, bounds, limit, fail_on_data_loss=fail_on_data_loss)


amounts = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 1000))


# --- shares


def test_every_producer_has_the_same_share_and_what_one_lacks_goes_to_the_others():
    assert share({"a": 100, "b": 5, "c": 100}, 65) == {"a": 30, "b": 5, "c": 30}


@given(amounts, st.integers(1, 2000))
def test_shares_use_the_limit_up_and_nobody_gives_more_than_it_has(available, limit):
    shares = share(available, limit)

    assert sum(shares.values()) == min(limit, sum(available.values()))
    assert all(0 <= shares[producer] <= available[producer] for producer in available)


@given(amounts, st.integers(1, 2000))
def test_who_gets_less_than_another_has_no_more(available, limit):
    shares = share(available, limit)

    for producer in available:
        if shares[producer] < max(shares.values()) - 1:
            assert shares[producer] == available[producer]


# --- the end of a batch


def test_without_a_limit_a_batch_has_all_there_is():
    assert plan({"a": 10, "b": 5}, {"a": log(0, 30), "b": log(0, 5)}) == {"a": 30, "b": 5}


def test_nothing_new_is_the_same_offset():
    start = {"a": 10, "b": 5}

    assert plan(start, {"a": log(0, 10), "b": log(5, 5)}, 100) == start


def test_a_gap_in_the_sequence_costs_nothing_of_the_limit():
    bounds = Bounds(0, 10**9 + 50, ((0, 10), (10**9, 10**9 + 50)), {})

    assert plan({"a": 5}, {"a": bounds}, 7) == {"a": 10**9 + 2}


def test_a_producer_that_cannot_be_reached_stays_where_it_is():
    assert plan({"a": 1, "gone": 7}, {"a": log(0, 9)}, fail_on_data_loss=False) == {"a": 9, "gone": 7}


def test_a_producer_that_is_not_in_the_offset_takes_no_part():
    assert plan({"a": 1}, {"a": log(0, 9), "new": log(0, 9)}) == {"a": 9}


@given(st.integers(0, 300), st.integers(1, 100))
def test_batch_by_batch_everything_is_read_once(position, limit):
    bounds = {"a": log(0, 200), "b": Bounds(0, 900, ((50, 120), (700, 900)), {})}
    start = {"a": min(position, 200), "b": position}
    read = {"a": [], "b": []}
    wanted = {"a": list(range(start["a"], 200))}
    wanted["b"] = [seq for seq in (*range(50, 120), *range(700, 900)) if seq >= position]
    while (end := plan(start, bounds, limit)) != start:
        batch = 0
        for part in plan_ranges(start, end, 2):
            found = [
                seq
                for first, stop in bounds[part.producer].extents
                for seq in range(max(first, part.start), min(stop, part.end))
            ]
            read[part.producer] += found
            batch += len(found)
        assert 0 < batch <= limit
        start = end

    assert read == wanted


# --- loss


def test_messages_that_are_not_kept_any_more_are_a_loss():
    with pytest.raises(
        DataLossError, match="has read nsqd n:1 up to 10, but the log there is kept from 20 on only"
    ):
        plan({"n:1": 10}, {"n:1": log(20, 30)})


def test_a_log_that_ends_before_what_was_read_is_a_loss():
    with pytest.raises(DataLossError, match="has read nsqd n:1 up to 100, but the log there ends at 30"):
        plan({"n:1": 100}, {"n:1": log(20, 30)})


def test_who_accepts_loss_goes_on_with_what_there_is():
    assert plan({"a": 10}, {"a": log(20, 30)}, 5, fail_on_data_loss=False) == {"a": 25}
    # A log that was replaced is read from its start, in the batch after this one.
    assert plan({"a": 100}, {"a": log(20, 30)}, fail_on_data_loss=False) == {"a": 20}
    assert plan({"a": 20}, {"a": log(20, 30)}, fail_on_data_loss=False) == {"a": 30}


# --- partitions


def test_each_producer_with_messages_is_a_partition():
    ranges = plan_ranges({"a": 1, "b": 5, "c": 3}, {"a": 9, "b": 5, "c": 4}, 1)

    assert ranges == [LogRange("a", 1, 9), LogRange("c", 3, 4)]


def test_a_producer_that_joins_or_starts_over_is_not_read_in_that_batch():
    assert plan_ranges({"a": 100}, {"a": 20, "new": 50}, 1) == []


@given(amounts, st.integers(1, 20))
def test_partitions_cover_the_batch_exactly(available, min_partitions):
    start = dict.fromkeys(available, 7)
    end = {producer: 7 + count for producer, count in available.items()}

    ranges = plan_ranges(start, end, min_partitions)

    for producer in available:
        parts = [part for part in ranges if part.producer == producer]
        positions = [position for part in parts for position in range(part.start, part.end)]
        assert positions == list(range(7, end[producer]))
        assert all(part.start < part.end for part in parts)
    assert len(ranges) >= min(min_partitions, sum(available.values()))


def test_a_channel_that_somebody_else_emptied_ends_the_query_with_the_count():
    kept = Bounds(0, 100, ((0, 60), (80, 100)), {"archive": 90})

    with pytest.raises(DataLossError, match="stands at 90: somebody else emptied or read it, 20 messages"):
        next_offsets({"a": 50}, {"a": kept}, None, fail_on_data_loss=True, channel="archive")


@pytest.mark.parametrize("stands", [10, 50, 60, 79])
def test_a_channel_that_owes_all_that_is_unread_is_no_loss(stands):
    kept = Bounds(0, 100, ((0, 50), (80, 100)), {"archive": stands})

    assert next_offsets({"a": 50}, {"a": kept}, None, fail_on_data_loss=True, channel="archive") == {"a": 100}


def test_who_accepts_loss_reads_what_is_left_of_an_emptied_channel():
    kept = Bounds(0, 100, ((0, 100),), {"archive": 90})

    assert next_offsets({"a": 50}, {"a": kept}, 10, fail_on_data_loss=False, channel="archive") == {"a": 60}
