"""Rows become requests: every body once and in order, and never more in one request than is allowed."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from pyspark_nsq.sink.outgoing import Outgoing, check_columns, outgoing
from pyspark_nsq.source.errors import OptionError, SourceError


def bodies_in(one):
    """The bodies of an MPUB."""
    count, at, found = int.from_bytes(one.content[:4], "big"), 4, []
    while at < len(one.content):
        size = int.from_bytes(one.content[at : at + 4], "big")
        found.append(one.content[at + 4 : at + 4 + size])
        at += 4 + size
    assert count == len(found) == one.messages
    return found


def rows(**columns):
    return pa.RecordBatch.from_pydict(columns)


@settings(deadline=None)  # the first call loads modules, which takes long
@given(st.lists(st.binary(min_size=1, max_size=50)), st.integers(1, 300))
def test_bodies_are_sent_once_and_in_their_order(bodies, most):
    batch = pa.RecordBatch.from_arrays([pa.array(bodies, pa.binary())], ["body"])
    sent = list(outgoing(batch, "t", most))

    assert [body for one in sent for body in bodies_in(one)] == bodies
    assert all(len(one.content) <= most + 4 or one.messages == 1 for one in sent)


def test_bodies_may_be_texts_or_slice_of_batch():
    batch = rows(body=["ä", "b", "c", "d"]).slice(1, 2)

    assert bodies_in(next(outgoing(rows(body=["ä"]), "t", 100))) == ["ä".encode()]
    assert bodies_in(next(outgoing(batch, "t", 100))) == [b"b", b"c"]


def test_row_goes_to_its_topic_or_to_that_of_option():
    sent = list(outgoing(rows(body=[b"1", b"2", b"3"], topic=["a", None, "a"]), "t", 100))

    assert [(one.topic, bodies_in(one)) for one in sent] == [("a", [b"1", b"3"]), ("t", [b"2"])]


def groups_of(**columns):
    """The group of each id, by the header that is sent."""
    batch = rows(body=[b"x"] * len(next(iter(columns.values()))), **columns)
    return {
        json.loads(body[2:-1])["dedup-id"]: one.group
        for one in outgoing(batch, "t", 1000)
        for body in bodies_in(one)
        if b"dedup-id" in body
    }


def test_equal_ids_have_one_of_many_groups():
    names = [f"order-{n}" for n in range(100)]
    first, second = groups_of(dedup_id=names), groups_of(dedup_id=names[:50])

    assert set(first) == set(names)
    assert second.items() <= first.items()
    assert len(set(first.values())) > 20


def test_id_is_in_column_or_else_in_header():
    headers = pa.array(
        [None, [("a", "1")], [("a", "1"), ("dedup-id", "x")], [("dedup-id", "y")]],
        pa.map_(pa.string(), pa.string()),
    )
    by_header = groups_of(headers=headers)

    assert by_header == groups_of(dedup_id=[None, None, "x", "y"])
    assert by_header.keys() == {"x", "y"}
    assert groups_of(headers=headers, dedup_id=["x", None, None, "z"]) == groups_of(
        dedup_id=["x", None, "x", "z"]
    )


def test_rows_without_id_have_no_group():
    sent = list(outgoing(rows(body=[b"1", b"2"], dedup_id=["a", None]), "t", 100))

    assert [one.group is None for one in sent] == [True, False]
    assert bodies_in(sent[0]) == [b"\0\x002"]


def test_deferred_message_is_sent_by_itself():
    sent = list(outgoing(rows(body=[b"1", b"2", b"3"], defer_ms=[None, 500, 0]), "t", 100))

    assert bodies_in(sent[0]) == [b"1", b"3"]
    assert sent[1:] == [Outgoing("t", b"2", 1, 500)]


def test_body_above_limit_is_named_by_its_row_in_partition():
    batch = rows(body=[b"1234", b"12345"])

    assert bodies_in(next(outgoing(batch, "t", 100, max_body=5))) == [b"1234", b"12345"]
    with pytest.raises(SourceError, match="body of row 8 of a partition has 5 bytes, above the 4 of nsqd"):
        next(outgoing(batch, "t", 100, max_body=4, row=7))


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"body": [b"1", None]}, "the body of row 1 of a partition is null, and a message needs a body"),
        (
            {"body": [b"1", b"", None]},
            "the body of row 1 of a partition is empty, and a message needs a body",
        ),
        ({"body": [b"1"], "topic": [None]}, "the column topic is null or empty"),
    ],
)
def test_row_that_cannot_be_published_is_named(columns, sentence):
    with pytest.raises(SourceError, match=sentence):
        list(outgoing(rows(**columns), "", 100))


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("body int", "the column body is int; it must be binary or string"),
        ("topic string", "there is no column body, which is what a message is made of"),
        ("body binary", "neither option topic nor a column topic says where the messages go"),
        ("body binary, price double", "a column 'price' cannot be published; there are body"),
    ],
)
def test_columns_that_cannot_be_published_are_named(schema, sentence):
    columns = StructType()
    for column in schema.split(", "):
        columns = columns.add(*column.replace(" int", " integer").split())
    with pytest.raises(OptionError, match=sentence):
        check_columns(columns, "")
