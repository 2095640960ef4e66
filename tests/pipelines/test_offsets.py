"""Offsets as Spark keeps them: JSON text, compared as text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.offsets import Offset, name_of, topic_and_address

names = st.text(min_size=1).map(lambda host: f"orders@{host}:4151")
sequences = st.integers(0, (1 << 54) - 1)
positions = st.dictionaries(names, sequences)
texts = st.dictionaries(names, st.text())
lists = st.dictionaries(names, st.lists(sequences, max_size=4))
offsets = st.builds(Offset, positions, positions, texts, texts, lists, lists, st.text())


def kept(offset):
    return json.loads(json.dumps(offset.json()))


@given(offsets)
def test_offset_survives_checkpoint_and_has_one_text(offset):
    assert Offset.parse(kept(offset)) == offset

    maps = (getattr(offset, name) for name in Offset.__slots__ if name != "channel")
    backwards = Offset(*(dict(reversed(found.items())) for found in maps), channel=offset.channel)
    assert json.dumps(offset.json()) == json.dumps(backwards.json())


def test_offset_of_earlier_version_gets_topic_of_query():
    earlier = {
        "a:1": 5,
        "b:1#12345678": 6,
        "ahead": {"a:1": 7},
        "data_paths": {"a:1": "5d41"},
        "addresses": {"b:1#12345678": "c:1"},
        "cuts": {"a:1": [1, 3]},
        "counts": {"a:1": [2, 2]},
    }

    assert Offset.parse(earlier, "orders") == Offset(
        {"orders@a:1": 5, "orders@b:1#12345678": 6},
        {"orders@a:1": 7},
        {"orders@a:1": "5d41"},
        {"orders@b:1#12345678": "c:1"},
        {"orders@a:1": [1, 3]},
        {"orders@a:1": [2, 2]},
    )
    with pytest.raises(SourceError, match="is of an earlier version and does not name its topic"):
        Offset.parse(earlier)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "x",
        {"t@a": "1"},
        {"t@a": 1.5},
        {"t@a": -1},
        {"t@a": True},
        {"t@a": {}},
        {"ahead": 1},
        {"ahead": {"t@a": -1}},
        {"data_paths": {"t@a": 1}},
        {"addresses": []},
        {"cuts": {"t@a": 1}},
        {"cuts": {"t@a": [-1]}},
        {"counts": {"t@a": 1}},
        {"channel": 1},
    ],
)
def test_offset_of_another_source_is_refused(value):
    with pytest.raises(SourceError, match="the checkpoint has an offset that is not of the data source nsq"):
        Offset.parse(value)


def test_name_of_log_has_topic_and_address_unless_log_has_moved():
    assert topic_and_address(name_of("orders", "[::1]:4151")) == ("orders", "[::1]:4151")
    assert topic_and_address("orders#ephemeral@a:1#12345678") == ("orders#ephemeral", "a:1")
    offset = Offset({"orders@a:1": 5, "orders@b:1#12345678": 6}, addresses={"orders@a:1": "c:1"})
    assert [offset.address(name) for name in offset.positions] == ["c:1", "b:1"]
