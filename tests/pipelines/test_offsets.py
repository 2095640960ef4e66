"""Offsets as Spark keeps them: JSON text, compared as text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.offsets import Offset, moved, name_of, place_of

names = st.text(min_size=1).map(lambda host: f"{host}:4151")
sequences = st.integers(0, (1 << 54) - 1)
positions = st.dictionaries(names, sequences)
texts = st.dictionaries(names, st.text())
lists = st.dictionaries(names, st.lists(sequences, max_size=4))
offsets = st.builds(Offset, positions, positions, texts, texts, lists, lists)


def kept(offset):
    return json.loads(json.dumps(offset.json()))


@given(offsets)
def test_an_offset_survives_the_checkpoint(offset):
    assert Offset.parse(kept(offset)) == offset


@given(positions)
def test_an_offset_of_before_there_was_more_than_positions_is_read(found):
    assert Offset.parse(json.loads(json.dumps(found))) == Offset(found)


@given(offsets)
def test_equal_offsets_have_equal_text(offset):
    backwards = Offset(*(dict(reversed(getattr(offset, name).items())) for name in Offset.__slots__))

    assert json.dumps(offset.json()) == json.dumps(backwards.json())


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
        {"data_paths": {"a": 1}},
        {"addresses": []},
        {"cuts": {"a": 1}},
        {"cuts": {"a": [-1]}},
        {"counts": {"a": 1}},
    ],
)
def test_an_offset_of_another_source_is_refused(value):
    with pytest.raises(SourceError, match="the checkpoint has an offset that is not of the data source nsq"):
        Offset.parse(value)


def test_a_log_is_at_the_address_of_its_name_unless_it_has_moved():
    offset = Offset({"a:1": 5, "orders@b:1#12345678": 6}, addresses={"a:1": "c:1"})

    assert [offset.address(name) for name in offset.positions] == ["c:1", "b:1"]


def test_a_name_says_topic_and_address():
    assert place_of(name_of("orders", "[::1]:4151")) == ("orders", "[::1]:4151")
    assert place_of("a:1") == ("", "a:1")


def test_only_what_moved_is_told():
    assert moved({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}) == {"b": 3, "c": 4}
