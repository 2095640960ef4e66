"""Offsets as Spark keeps them: JSON text, compared as text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.source.errors import SourceError
from pipelines.source.offsets import moved, ordered, parse_offsets

offsets = st.dictionaries(st.text(min_size=1), st.integers(0, (1 << 54) - 1))


@given(offsets)
def test_an_offset_survives_the_checkpoint(positions):
    assert parse_offsets(json.loads(json.dumps(ordered(positions)))) == positions


@given(offsets)
def test_equal_offsets_have_equal_text(positions):
    backwards = dict(reversed(positions.items()))

    assert json.dumps(ordered(positions)) == json.dumps(ordered(backwards))


@pytest.mark.parametrize("value", [None, [], "x", {"a": "1"}, {"a": 1.5}, {"a": -1}, {"a": True}, {"a": {}}])
def test_an_offset_of_another_source_is_refused(value):
    with pytest.raises(SourceError, match="the checkpoint has an offset that is not of the data source nsq"):
        parse_offsets(value)


def test_only_what_moved_is_told():
    assert moved({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}) == {"b": 3, "c": 4}
