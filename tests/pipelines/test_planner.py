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


def test_share_that_one_log_lacks_goes_to_others():
    assert share({"a": 100, "b": 5, "c": 100}, 65) == {"a": 30, "b": 5, "c": 30}


@given(amounts, st.integers(1, 2000))
def test_shares_use_limit_up_and_are_equal_unless_log_has_less(available, limit):
    shares = share(available, limit)

    assert sum(shares.values()) == min(limit, sum(available.values()))
    for producer in available:
        assert 0 <= shares[producer] <= available[producer]
        if shares[producer] < max(shares.values()) - 1:
            assert shares[producer] == available[producer]


# --- the end of a batch


@pytest.mark.parametrize(
    ("start", "bounds", "limit", "end"),
    [
        ({"a": 10, "b": 5}, {"a": log(0, 30), "b": log(0, 5)}, None, {"a": 30, "b": 5}),
        ({"a": 10, "b": 5}, {"a": log(0, 10), "b": log(5, 5)}, 100, {"a": 10, "b": 5}),
        # A gap in the sequence costs nothing of the limit.
        (
            {"a": 5},
            {"a": Bounds(0, 10**9 + 50, ((0, 10), (10**9, 10**9 + 50)), {})},
            7,
            {"a": 10**9 + 2},
        ),
        # One log is out of reach, and another one is not in the offset.
        ({"a": 1, "gone": 7}, {"a": log(0, 9), "new": log(0, 9)}, None, {"a": 9, "gone": 7}),
    ],
    ids=["all", "nothing new", "gap", "other logs"],
)
def test_batch_ends_at_limit_or_at_last_message(start, bounds, limit, end):
    assert plan(start, bounds, limit) == end


@given(st.integers(0, 300), st.integers(1, 100))
def test_messages_are_read_once_batch_by_batch(position, limit):
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


@pytest.mark.parametrize(
    ("position", "sentence"),
    [
        (10, "up to 10, but the log there is kept from 20 on only"),
        (100, "up to 100, but the log there ends at 30"),
    ],
)
def test_position_outside_log_is_loss(position, sentence):
    with pytest.raises(DataLossError, match=f"has read nsqd n:1 {sentence}"):
        plan({"n:1": position}, {"n:1": log(20, 30)})


def test_log_with_loss_is_read_from_its_start_if_loss_is_accepted():
    assert plan({"a": 10}, {"a": log(20, 30)}, 5, fail_on_data_loss=False) == {"a": 25}
    # A log that was replaced is read from its start, in the batch after this one.
    assert plan({"a": 100}, {"a": log(20, 30)}, fail_on_data_loss=False) == {"a": 20}
    assert plan({"a": 20}, {"a": log(20, 30)}, fail_on_data_loss=False) == {"a": 30}


# --- partitions


@given(amounts, st.integers(1, 20), st.none() | st.integers(1, 300))
def test_partitions_cover_batch_exactly(available, min_partitions, most):
    start = dict.fromkeys(available, 7)
    end = {name: 7 + count for name, count in available.items()}
    bounds = {name: log(7, position) for name, position in end.items()}
    cuts = split(start, end, bounds, BatchLimits(partitions=min_partitions, partition_rows=most), {})
    ranges = plan_ranges(Offset(start), Offset(end, cuts=cuts))

    for name in available:
        parts = [part for part in ranges if part.producer == name]
        positions = [position for part in parts for position in range(part.start, part.end)]
        assert positions == list(range(7, end[name]))
        assert all(0 < part.end - part.start <= (most or 1000) for part in parts)
    assert len(ranges) >= min(min_partitions, sum(available.values()))


def test_logs_without_messages_in_batch_have_no_partition():
    """The log c joins, and the log d was replaced and starts over."""
    logs = {"a:1": log(1, 9), "b:1": log(1, 5), "c:1": log(0, 50), "d:1": log(20, 30)}
    start, end = {"a:1": 1, "b:1": 5, "d:1": 100}, {"a:1": 9, "b:1": 5, "c:1": 50, "d:1": 20}

    assert [(part.producer, part.start, part.end) for part in ranges_of(start, end, logs)] == [("a:1", 1, 9)]


def test_log_is_cut_between_messages_and_not_between_numbers():
    parts = Bounds(0, 10**12, ((0, 1000), (10**12 - 1000, 10**12)), {})
    ranges = ranges_of({"a": 0}, {"a": 10**12}, {"a": parts}, 4)

    assert [parts.count(part.start, part.end) for part in ranges] == [500] * 4


def test_logs_with_larger_messages_are_cut_into_more_pieces():
    bounds = {"small": log(0, 1000), "large": log(0, 1000)}
    ranges = ranges_of({"small": 0, "large": 0}, {"small": 1000, "large": 1000}, bounds, 4, {"large": 99.0})

    assert [part.producer for part in ranges] == ["large"] * 4 + ["small"]


@pytest.mark.parametrize(("size", "pieces"), [(0, 1), (1, 1), (10_000, 2), (1_000_000, 4)])
def test_log_is_cut_for_cores_if_that_is_worth_it(size, pieces):
    cuts = split({"a": 0}, {"a": 1000}, {"a": log(0, 1000)}, BatchLimits(cores=4), {"a": size})

    assert len(cuts["a"]) == pieces


@pytest.mark.parametrize(
    ("logs", "cores", "size", "pieces"),
    [
        *((1, 2, 1e6, 2), (2, 2, 1e6, 1), (3, 2, 1e6, 2), (5, 2, 1e6, 2), (20, 2, 1e6, 1)),
        *((3, 8, 1e6, 8), (3, 3, 1e6, 1)),
        (3, 2, 5000.0, 1),  # not worth it
    ],
)
def test_cores_have_even_work(logs, cores, size, pieces):
    """Without cuts, one of two cores would have to read two of three logs."""
    names = [f"{number:02}" for number in range(logs)]
    bounds = {name: log(0, 1000) for name in names}
    begin, end = dict.fromkeys(names, 0), dict.fromkeys(names, 1000)
    cuts = split(begin, end, bounds, BatchLimits(cores=cores), dict.fromkeys(names, size))

    assert {len(cuts[name]) for name in names} == {pieces}


def test_first_batch_follows_from_its_end_alone():
    end = Offset({"a:1": 20}, cuts={"a:1": [5, 12]})

    assert plan_ranges(Offset({"a:1": 20}), end) == plan_ranges(Offset({"a:1": 5}), end)
    assert [(part.start, part.end) for part in plan_ranges(Offset({}), end)] == [(5, 12), (12, 20)]
    assert plan_ranges(end, end) == []


def test_batch_of_offset_without_cuts_is_read_whole():
    (part,) = plan_ranges(Offset({"a:1": 5, "b:1": 3}), Offset({"a:1": 20, "b:1": 3, "c:1": 9}))

    assert (part.producer, part.start, part.end, part.count) == ("a:1", 5, 20, None)


def test_moved_log_is_read_at_its_address_and_keeps_its_name():
    end = Offset({"t@a:1": 9}, data_paths={"t@a:1": "id"}, addresses={"t@a:1": "b:1"}, cuts={"t@a:1": [5]})

    (part,) = plan_ranges(Offset({}), end)
    assert (part.address, part.nsqd, part.topic, part.data_path) == ("b:1", "a:1", "t", "id")
    (part,) = plan_ranges(Offset({}), end, {"t@a:1": "c:1"})
    assert part.address == "c:1"


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


def test_log_of_large_messages_advances_beside_busy_log():
    sizes = {"busy": 200.0, "large": 2.0 * (1 << 20)}
    backlog = {"busy": 1 << 30, "large": 5}
    batches = list(islice(batches_of(backlog, 1 << 20, sizes), 4))

    assert [found["large"] for found in batches] == [0, 1, 0, 1]
    assert [found["busy"] for found in batches] == [(1 << 20) // 200, 0, (1 << 20) // 200, 0]


@given(
    st.dictionaries(
        st.sampled_from("abcdef"), st.tuples(st.integers(0, 50), st.sampled_from((0.0, 0.25, 1.5, 40, 300)))
    ),
    st.integers(1, 500),
)
def test_logs_all_advance_and_limit_is_exceeded_only_for_large_message(logs, size):
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


KEPT = ((0, 50), (80, 100))


@pytest.mark.parametrize(("stands", "ahead"), [(10, 0), (50, 0), (60, 0), (79, 0), (90, 90)])
def test_channel_with_all_unread_messages_pending_is_no_loss(stands, ahead):
    check_not_skipped("a", 50, Bounds(0, 100, KEPT, {"archive": stands}), "archive", ahead)


def test_emptied_channel_is_loss_with_count():
    sentence = "stands at 90: another query or a consumer uses the channel, .* 10 messages may be"
    with pytest.raises(DataLossError, match=sentence):
        check_not_skipped("a", 50, Bounds(0, 100, KEPT, {"archive": 90}), "archive")
