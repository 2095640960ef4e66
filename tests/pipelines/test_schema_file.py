"""A schema that the user did not give: it is inferred from the oldest and newest messages, and kept."""

import json

import pytest

from pyspark_nsq.source import schema_file
from pyspark_nsq.source.errors import OptionError, SourceError
from pyspark_nsq.source.schema_file import schema_of


@pytest.fixture
def parsed(nodes, topic, tmp_path):
    def with_options(name=topic, **changes):
        given = {"bodyFormat": "json", "schemaLocation": str(tmp_path / "next" / "schema.json"), **changes}
        return nodes.parsed(name, **given)

    return with_options


def members(schema):
    return [name for name in schema.names if len(name) == 1]


def test_inferred_schema_is_kept_when_other_messages_come(nodes, topic, parsed, tmp_path):
    nodes.publish(nodes.nsqds[0], topic, b'{"a": 1}')
    nodes.publish(nodes.nsqds[1], topic, b'{"b": "x"}')
    found = schema_of(parsed())
    nodes.publish(nodes.nsqds[0], topic, b'{"c": 1}')

    assert sorted(members(found)) == ["a", "b"]
    assert schema_of(parsed()) == found
    assert [path.name for path in (tmp_path / "next").iterdir()] == ["schema.json"]
    # Without a place to keep it, the schema is inferred again.
    assert sorted(members(schema_of(parsed(schemaLocation="")))) == ["a", "b", "c"]


def test_schema_is_inferred_from_oldest_and_newest_messages(nodes, topic, parsed, monkeypatch):
    monkeypatch.setattr(schema_file, "_MESSAGES", 2)
    bodies = [json.dumps({name: 1}).encode() for name in "abcdef"]
    nodes.publish(nodes.nsqds[0], topic, *bodies)
    nodes.publish(nodes.nsqds[1], topic, b'{"x": 1}', b'{"y": 1}', b'{"z": 1}')

    assert sorted(members(schema_of(parsed()))) == ["a", "b", "e", "f", "x", "y", "z"]


@pytest.mark.parametrize("text", ["", "{}", "nothing", '{"topics": "t", "schema": 5}'])
def test_file_without_schema_is_named_and_kept(parsed, tmp_path, text):
    file = tmp_path / "next" / "schema.json"
    file.parent.mkdir()
    file.write_text(text)

    with pytest.raises(SourceError, match=r"schema\.json, which option schemaLocation names, has no schema"):
        schema_of(parsed())
    assert file.read_text() == text


def test_unusable_topic_or_place_is_named(nodes, topic, parsed, tmp_path):
    nodes.publish(nodes.nsqds[0], topic, b"no json")
    with pytest.raises(SourceError, match="has no message with a JSON object"):
        schema_of(parsed())
    nodes.publish(nodes.nsqds[0], topic, b'{"a": 1}')
    schema_of(parsed())
    with pytest.raises(OptionError, match=f"where the schema of topic '{topic}' is kept, not of 'other'"):
        schema_of(parsed("other"))
    with pytest.raises(OptionError, match="option schemaLocation is 'nowhere://x'"):
        schema_of(parsed(schemaLocation="nowhere://x"))
    (tmp_path / "file").write_text("a file in the way")
    with pytest.raises(SourceError, match="which option schemaLocation names, cannot be"):
        schema_of(parsed(schemaLocation=str(tmp_path / "file" / "schema.json")))
