"""Counting and advancing in a log whose sequence numbers have gaps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_nsq.source.bounds import Bounds

ANSWER = {
    "topic": "t",
    "node_id": 1,
    "first": 10,
    "end": 500,
    "extents": [[10, 20], [100, 130]],
    "channels": {"archive": {"acknowledged": 15}},
}


def logs():
    """Logs of a few extents with gaps between them."""
    lengths = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 1000)), max_size=4)

    def build(steps):
        position, extents = 7, []
        for length, gap in steps:
            position += gap
            extents.append((position, position + length))
            position += length
        return Bounds(7, position + 3, tuple(extents), {})

    return lengths.map(build)


def test_answer_of_nsqd_is_read():
    bounds = Bounds.from_json(ANSWER)

    assert bounds == Bounds(10, 500, ((10, 20), (100, 130)), {"archive": 15})
    assert bounds.readable_end == 130


def test_missing_messages_are_passed_over():
    gaps = [{"start": 130, "end": 150, "why": "removed"}, {"start": 15, "end": 30, "why": "removed"}]
    bounds = Bounds.from_json({**ANSWER, "gaps": gaps, "data_path": "ab"})

    assert bounds == Bounds(10, 500, ((10, 30), (100, 150)), {"archive": 15}, "ab")
    assert bounds.readable_end == 150
    assert bounds.until(140).readable_end == 140


def test_log_with_all_messages_missing_is_read_to_its_end():
    bounds = Bounds.from_json(
        {**ANSWER, "extents": [], "gaps": [{"start": 10, "end": 130, "why": "removed"}]}
    )

    assert bounds.readable_end == 130


@pytest.mark.parametrize(
    "damage",
    [
        {"first": "10"},
        {"end": None},
        {"extents": [[1, 2, 3]]},
        {"extents": 5},
        {"channels": []},
        {"first": -1},
        {"gaps": [{"start": 1}]},
        {"data_path": 5},
    ],
)
def test_any_other_answer_is_refused(damage):
    with pytest.raises((TypeError, ValueError, KeyError)):
        Bounds.from_json({**ANSWER, **damage})


def test_message_is_found_by_how_many_are_before_it():
    bounds = Bounds.from_json(ANSWER)

    assert [bounds.position_after(10, number) for number in (0, 9, 10, 39, 40)] == [10, 19, 100, 129, 130]
    assert bounds.count(15, 101) == 6


@pytest.mark.parametrize(
    ("start", "messages", "there"),
    [
        (10, 3, 13),
        (10, 10, 20),
        (10, 11, 101),
        (20, 1, 101),
        (60, 2, 102),
        (15, 99, 130),
        (130, 5, 130),
        (10, 0, 10),
    ],
)
def test_numbers_between_extents_are_no_messages(start, messages, there):
    assert Bounds.from_json(ANSWER).advance(start, messages) == there


@given(logs(), st.integers(0, 4000), st.integers(0, 300))
def test_advancing_passes_exactly_as_many_messages_as_it_was_asked_for(log, start, messages):
    there = log.advance(start, messages)

    assert there >= start
    assert log.count(start) - log.count(there) == min(messages, log.count(start))


@given(logs(), st.integers(0, 4000))
def test_log_seen_until_position_ends_there(log, end):
    seen = log.until(end)

    assert seen.count(0) == log.count(0) - log.count(end)
    assert all(start < stop <= end for start, stop in seen.extents)
