"""The content of a batch: fair shares, no repetition, no gap, and the same again from the same offsets."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_nsq.source.bounds import Bounds
from pyspark_nsq.source.errors import DataLossError
from pyspark_nsq.source.offsets import Offset
from pyspark_nsq.source.planner import (
    BatchLimits,
    check_not_skipped,
    next_positions,
    plan_ranges,
    share,
    split,
    within_size,
)


def log(first, end):
    return Bounds(first, end, ((first, end),) if first < end else (), {})


def plan(start, bounds, limit=None, *, fail_on_data_loss=True):
    return next_positions(start, bounds, BatchLimits(rows=limit), {}, fail_on_data_loss=fail_on_data_loss)


def ranges_of(start, end, bounds, pieces=1, sizes=None):
    """The partitions of a batch, computed from its offsets."""
    cuts = split(start, end, bounds, BatchLimits(partitions=pieces), sizes or {})
    return plan_ranges(Offset(start), Offset(end, cuts=cuts))


amounts = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 1000))


# --- shares


def test_every_producer_has_the_same_share_and_what_one_lacks_goes_to_the_others():
    assert share({"a": 100, "b": 5, "c": 100}, 65) == {"a": 30, "b": 5, "c": 30}


@given(amounts, st.integers(1, 2000))
def test_shares_use_limit_up_and_nobody_gives_more_than_it_has(available, limit):
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


def test_without_limit_batch_has_all_there_is():
    assert plan({"a": 10, "b": 5}, {"a": log(0, 30), "b": log(0, 5)}) == {"a": 30, "b": 5}


def test_nothing_new_is_the_same_offset():
    start = {"a": 10, "b": 5}

    assert plan(start, {"a": log(0, 10), "b": log(5, 5)}, 100) == start


def test_gap_in_sequence_costs_nothing_of_limit():
    bounds = Bounds(0, 10**9 + 50, ((0, 10), (10**9, 10**9 + 50)), {})

    assert plan({"a": 5}, {"a": bounds}, 7) == {"a": 10**9 + 2}


def test_producer_that_cannot_be_reached_stays_where_it_is():
    assert plan({"a": 1, "gone": 7}, {"a": log(0, 9)}, fail_on_data_loss=False) == {"a": 9, "gone": 7}


def test_producer_that_is_not_in_offset_takes_no_part():
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
        for part in ranges_of(start, end, bounds, 2):
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


def test_messages_that_are_not_kept_any_more_are_loss():
    with pytest.raises(
        DataLossError, match="has read nsqd n:1 up to 10, but the log there is kept from 20 on only"
    ):
        plan({"n:1": 10}, {"n:1": log(20, 30)})


def test_log_that_ends_before_read_position_is_loss():
    with pytest.raises(DataLossError, match="has read nsqd n:1 up to 100, but the log there ends at 30"):
        plan({"n:1": 100}, {"n:1": log(20, 30)})


def test_query_that_accepts_loss_continues():
    assert plan({"a": 10}, {"a": log(20, 30)}, 5, fail_on_data_loss=False) == {"a": 25}
    # A log that was replaced is read from its start, in the batch after this one.
    assert plan({"a": 100}, {"a": log(20, 30)}, fail_on_data_loss=False) == {"a": 20}
    assert plan({"a": 20}, {"a": log(20, 30)}, fail_on_data_loss=False) == {"a": 30}


# --- partitions


@given(amounts, st.integers(1, 300), st.integers(1, 8))
def test_no_partition_has_more_messages_than_limit(amounts, most, cores):
    bounds = {name: log(0, count) for name, count in amounts.items()}
    limits = BatchLimits(partition_rows=most, cores=cores)
    cuts = split(dict.fromkeys(amounts, 0), amounts, bounds, limits, {})
    ranges = plan_ranges(Offset(dict.fromkeys(amounts, 0)), Offset(amounts, cuts=cuts))

    assert all(part.end - part.start <= most for part in ranges)
    assert sum(part.end - part.start for part in ranges) == sum(amounts.values())


def test_each_log_with_messages_is_partition():
    bounds = {"a:1": log(1, 9), "b:1": log(1, 5), "c:1": log(3, 4)}
    ranges = ranges_of({"a:1": 1, "b:1": 5, "c:1": 3}, {"a:1": 9, "b:1": 5, "c:1": 4}, bounds)

    assert [(part.producer, part.start, part.end) for part in ranges] == [("a:1", 1, 9), ("c:1", 3, 4)]


def test_log_that_joins_or_starts_over_is_not_read_in_that_batch():
    assert ranges_of({"a": 100}, {"a": 20, "new": 50}, {"a": log(20, 30), "new": log(0, 50)}) == []


@given(amounts, st.integers(1, 20))
def test_partitions_cover_batch_exactly(available, min_partitions):
    start = dict.fromkeys(available, 7)
    end = {name: 7 + count for name, count in available.items()}
    bounds = {name: log(7, position) for name, position in end.items()}

    ranges = ranges_of(start, end, bounds, min_partitions)

    for name in available:
        parts = [part for part in ranges if part.producer == name]
        positions = [position for part in parts for position in range(part.start, part.end)]
        assert positions == list(range(7, end[name]))
        assert all(part.start < part.end for part in parts)
    assert len(ranges) >= min(min_partitions, sum(available.values()))


def test_log_is_cut_between_messages_whatever_numbers_restart_skipped():
    parts = Bounds(0, 10**12, ((0, 1000), (10**12 - 1000, 10**12)), {})
    ranges = ranges_of({"a": 0}, {"a": 10**12}, {"a": parts}, 4)

    assert [parts.count(part.start, part.end) for part in ranges] == [500] * 4


def test_log_is_cut_also_when_its_messages_seem_to_have_no_bytes():
    assert split({"a": 0}, {"a": 10}, {"a": log(0, 10)}, BatchLimits(cores=2), {"a": 0.0}) == {"a": [0]}


def test_logs_with_larger_messages_are_cut_into_more_pieces():
    bounds = {"small": log(0, 1000), "large": log(0, 1000)}
    ranges = ranges_of({"small": 0, "large": 0}, {"small": 1000, "large": 1000}, bounds, 4, {"large": 99.0})

    assert [part.producer for part in ranges] == ["large"] * 4 + ["small"]


def test_without_word_there_are_as_many_partitions_as_cores_if_that_is_worth_it():
    def pieces(size):
        return len(split({"a": 0}, {"a": 1000}, {"a": log(0, 1000)}, BatchLimits(cores=4), {"a": size})["a"])

    assert [pieces(size) for size in (1, 10_000, 1_000_000)] == [1, 2, 4]


@pytest.mark.parametrize(
    ("logs", "cores", "pieces"),
    [(1, 2, 2), (2, 2, 1), (3, 2, 2), (5, 2, 2), (20, 2, 1), (3, 8, 8), (3, 3, 1)],
)
def test_cores_have_about_the_same_to_do(logs, cores, pieces):
    """Without cuts, one of two cores would have to read two of three logs."""
    names = [f"{number:02}" for number in range(logs)]
    bounds = {name: log(0, 1000) for name in names}
    sizes = dict.fromkeys(names, 1e6)
    cuts = split(dict.fromkeys(names, 0), dict.fromkeys(names, 1000), bounds, BatchLimits(cores=cores), sizes)

    assert {len(cuts[name]) for name in names} == {pieces}


def test_what_is_not_worth_it_is_not_cut_to_have_the_same_to_do():
    bounds = {name: log(0, 1000) for name in "abc"}
    cuts = split(
        dict.fromkeys("abc", 0),
        dict.fromkeys("abc", 1000),
        bounds,
        BatchLimits(cores=2),
        dict.fromkeys("abc", 5000.0),
    )

    assert {len(begins) for begins in cuts.values()} == {1}


def test_first_batch_is_what_its_end_says_also_when_its_start_is_found_elsewhere():
    end = Offset({"a:1": 20}, cuts={"a:1": [5, 12]})

    assert plan_ranges(Offset({"a:1": 20}), end) == plan_ranges(Offset({"a:1": 5}), end)
    assert [(part.start, part.end) for part in plan_ranges(Offset({}), end)] == [(5, 12), (12, 20)]
    assert plan_ranges(end, end) == []


def test_batch_that_was_planned_before_there_were_cuts_is_read_whole():
    (part,) = plan_ranges(Offset({"a:1": 5, "b:1": 3}), Offset({"a:1": 20, "b:1": 3, "c:1": 9}))

    assert (part.producer, part.start, part.end, part.count) == ("a:1", 5, 20, None)


def test_log_that_has_moved_is_read_where_it_is_and_keeps_its_name():
    end = Offset({"t@a:1": 9}, data_paths={"t@a:1": "id"}, addresses={"t@a:1": "b:1"}, cuts={"t@a:1": [5]})

    (part,) = plan_ranges(Offset({}), end)
    assert (part.address, part.nsqd, part.topic, part.data_path) == ("b:1", "a:1", "t", "id")
    (part,) = plan_ranges(Offset({}), end, {"t@a:1": "c:1"})
    assert part.address == "c:1"


@given(amounts, st.integers(1, 100_000))
def test_batch_is_about_as_large_as_its_limit_and_never_empty(available, size):
    sizes = dict.fromkeys(available, 10.0)
    found = within_size(available, size, sizes)

    assert all(found[name] <= available[name] for name in available)
    assert sum(found.values()) * 10 <= max(size, 10)
    assert any(found.values()) == any(available.values())


def batches_of(backlog, size, sizes):
    """What each batch has until nothing is left, or the first hundred of them."""
    backlog = dict(backlog)
    for turn in range(100):
        if not any(backlog.values()):
            return
        found = within_size(backlog, size, sizes, turn)
        backlog = {name: count - found[name] for name, count in backlog.items()}
        yield found


def test_logs_whose_share_is_less_than_a_message_take_turns():
    names = [f"n{number:02}" for number in range(20)]
    backlog, sizes = dict.fromkeys(names, 100), dict.fromkeys(names, 4.0 * (1 << 20))
    batches = list(islice(batches_of(backlog, 64 << 20, sizes), 20))

    assert {sum(found.values()) for found in batches} == {16}
    assert {sum(found[name] for found in batches) for name in names} == {16}


def test_log_of_large_messages_advances_while_another_never_runs_out():
    sizes = {"busy": 200.0, "large": 2.0 * (1 << 20)}
    backlog = {"busy": 1 << 30, "large": 5}
    batches = list(islice(batches_of(backlog, 1 << 20, sizes), 4))

    assert [found["large"] for found in batches] == [0, 1, 0, 1]
    assert [found["busy"] for found in batches] == [(1 << 20) // 200, 0, (1 << 20) // 200, 0]


def test_message_that_is_said_to_have_no_bytes_takes_as_much_as_one_byte():
    assert within_size({"a": 100}, 10, {"a": 0.0}) == {"a": 10}


@given(
    st.dictionaries(
        st.sampled_from("abcdef"), st.tuples(st.integers(0, 50), st.sampled_from((0.0, 0.25, 1.5, 40, 300)))
    ),
    st.integers(1, 500),
)
def test_planner_advances_every_log_and_exceeds_limit_only_for_large_message(logs, size):
    backlog = {name: count for name, (count, _) in logs.items()}
    sizes = {name: float(average) for name, (_, average) in logs.items()}
    passed_over = dict.fromkeys(logs, 0)
    for found in batches_of(backlog, size, sizes):
        together = sum(count * max(1.0, sizes[name]) for name, count in found.items())
        assert together <= size or sum(found.values()) == 1
        assert any(found.values())
        passed_over = {
            name: passed_over[name] + 1 if backlog[name] and not found[name] else 0 for name in logs
        }
        assert max(passed_over.values()) <= len(logs) ** 2
        backlog = {name: count - found[name] for name, count in backlog.items()}
        rest = size - together
        assert not any(count and max(1.0, sizes[name]) <= rest for name, count in backlog.items())


# --- a channel with another user


def test_channel_that_somebody_else_emptied_ends_query_with_count():
    kept = Bounds(0, 100, ((0, 60), (80, 100)), {"archive": 90})

    with pytest.raises(
        DataLossError,
        match=r"stands at 90: another query or a consumer uses the channel, .* 20 messages may be",
    ):
        check_not_skipped("a", 50, kept, "archive")


@pytest.mark.parametrize("stands", [10, 50, 60, 79])
def test_channel_with_all_unread_messages_pending_is_no_loss(stands):
    check_not_skipped("a", 50, Bounds(0, 100, ((0, 50), (80, 100)), {"archive": stands}), "archive")


def test_channel_may_be_ahead_as_far_as_it_was_when_query_began():
    check_not_skipped("a", 50, Bounds(0, 100, ((0, 100),), {"archive": 90}), "archive", ahead=90)
