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
def test_every_body_is_sent_once_and_in_its_order(bodies, most):
    batch = pa.RecordBatch.from_arrays([pa.array(bodies, pa.binary())], ["body"])
    sent = list(outgoing(batch, "t", most))

    assert [body for one in sent for body in bodies_in(one)] == bodies
    assert all(len(one.content) <= most + 4 or one.messages == 1 for one in sent)


def test_slice_of_batch_is_that_slice():
    batch = rows(body=[b"%d" % n for n in range(10)]).slice(3, 4)

    assert bodies_in(next(outgoing(batch, "t", 100))) == [b"3", b"4", b"5", b"6"]


def test_body_above_limit_is_named_by_its_row_in_partition():
    batch = rows(body=[b"1234", b"12345"])

    assert bodies_in(next(outgoing(batch, "t", 100, max_body=5))) == [b"1234", b"12345"]
    with pytest.raises(SourceError, match="body of row 8 of a partition has 5 bytes, above the 4 of nsqd"):
        next(outgoing(batch, "t", 100, max_body=4, row=7))


def test_texts_are_sent_as_utf8():
    assert bodies_in(next(outgoing(rows(body=["ä"]), "t", 100))) == ["ä".encode()]


def test_each_row_goes_to_its_topic_or_to_the_one_of_option():
    sent = list(outgoing(rows(body=[b"1", b"2", b"3"], topic=["a", None, "a"]), "t", 100))

    assert [(one.topic, bodies_in(one)) for one in sent] == [("a", [b"1", b"3"]), ("t", [b"2"])]


def test_rows_with_the_same_id_are_of_the_same_group_and_carry_it_as_a_header():
    ids = [f"order-{n}" for n in range(100)]
    first = list(outgoing(rows(body=[b"x"] * 100, dedup_id=ids), "t", 1000))
    second = list(outgoing(rows(body=[b"x"] * 50, dedup_id=ids[:50]), "t", 1000))

    def group_of(sent):
        return {
            json.loads(body[2 : -len(b"x")])["dedup-id"]: one.group for one in sent for body in bodies_in(one)
        }

    assert set(group_of(first)) == set(ids)
    assert group_of(second).items() <= group_of(first).items()
    assert len(set(group_of(first).values())) > 20


def groups_of(**columns):
    """The group of each id, by the header that is sent."""
    batch = rows(body=[b"x"] * 4, **columns)
    return {
        json.loads(body[2:-1])["dedup-id"]: one.group
        for one in outgoing(batch, "t", 100)
        for body in bodies_in(one)
        if b"dedup-id" in body
    }


def test_header_is_as_good_id_as_column_which_comes_first():
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


def test_rows_without_id_go_anywhere():
    sent = list(outgoing(rows(body=[b"1", b"2"], dedup_id=["a", None]), "t", 100))

    assert [one.group is None for one in sent] == [True, False]
    assert bodies_in(sent[0]) == [b"\0\x002"]


def test_message_that_is_put_off_is_sent_by_itself():
    sent = list(outgoing(rows(body=[b"1", b"2", b"3"], defer_ms=[None, 500, 0]), "t", 100))

    assert bodies_in(sent[0]) == [b"1", b"3"]
    assert sent[1:] == [Outgoing("t", b"2", 1, 500)]


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
