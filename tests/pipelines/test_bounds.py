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


@pytest.mark.parametrize(
    ("changes", "extents", "end"),
    [
        ({}, ((10, 20), (100, 130)), 130),
        ({"gaps": [{"start": 130, "end": 150}, {"start": 15, "end": 30}]}, ((10, 30), (100, 150)), 150),
        ({"extents": [], "gaps": [{"start": 10, "end": 130}]}, ((10, 130),), 130),
    ],
    ids=["whole", "with missing messages", "all are missing"],
)
def test_missing_messages_count_as_existing(changes, extents, end):
    bounds = Bounds.from_json({**ANSWER, **changes, "data_path": "ab"})

    assert bounds == Bounds(10, 500, extents, {"archive": 15}, "ab")
    assert bounds.readable_end == end
    assert bounds.until(110).readable_end == min(end, 110)


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
def test_invalid_answer_is_refused(damage):
    with pytest.raises((TypeError, ValueError, KeyError)):
        Bounds.from_json({**ANSWER, **damage})


def test_message_is_found_by_number_of_messages_before_it():
    bounds = Bounds.from_json(ANSWER)

    assert [bounds.position_after(10, number) for number in (0, 9, 10, 39, 40)] == [10, 19, 100, 129, 130]
    assert bounds.count(15, 101) == 6
    # A batch ends after its last message.
    assert [bounds.advance(10, count) for count in (0, 10, 11, 99)] == [10, 20, 101, 130]


@given(logs(), st.integers(0, 4000), st.integers(0, 300))
def test_position_advances_by_number_of_messages(log, start, messages):
    there = log.advance(start, messages)

    assert there >= start
    assert log.count(start) - log.count(there) == min(messages, log.count(start))


@given(logs(), st.integers(0, 4000))
def test_log_until_position_ends_there(log, end):
    seen = log.until(end)

    assert seen.count(0) == log.count(0) - log.count(end)
    assert all(start < stop <= end for start, stop in seen.extents)
