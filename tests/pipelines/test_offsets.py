"""Offsets as Spark keeps them: JSON text, compared as text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.source.errors import SourceError
from pipelines.source.offsets import moved, ordered, parse_ahead, parse_offsets, with_ahead

producers = st.text(min_size=1).map(lambda host: f"{host}:4151")
offsets = st.dictionaries(producers, st.integers(0, (1 << 54) - 1))


@given(offsets)
def test_an_offset_survives_the_checkpoint(positions):
    assert parse_offsets(json.loads(json.dumps(ordered(positions)))) == positions


@given(offsets, offsets)
def test_where_the_channel_stood_survives_the_checkpoint_beside_the_positions(positions, ahead):
    kept = json.loads(json.dumps(with_ahead(positions, ahead)))

    assert (parse_offsets(kept), parse_ahead(kept)) == (positions, ahead)
    assert list(kept) == [*sorted(positions), *(["ahead"] if ahead else [])]


@given(offsets)
def test_equal_offsets_have_equal_text(positions):
    backwards = dict(reversed(positions.items()))

    assert json.dumps(ordered(positions)) == json.dumps(ordered(backwards))


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "x",
        {"a": "1"},
        {"a": 1.5},
        {"a": -1},
        {"a": True},
        {"a": {}},
        {"ahead": 1},
        {"ahead": {"a": -1}},
    ],
)
def test_an_offset_of_another_source_is_refused(value):
    with pytest.raises(SourceError, match="the checkpoint has an offset that is not of the data source nsq"):
        parse_offsets(value)


def test_only_what_moved_is_told():
    assert moved({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}) == {"b": 3, "c": 4}
