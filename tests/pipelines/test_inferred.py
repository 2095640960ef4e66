"""Columns inferred from bodies: the majority decides, and all bodies can be read."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_nsq.source.inferred import infer
from pyspark_nsq.source.json_columns import JsonColumns


def columns(*values, headers=False):
    """The inferred columns of the JSON, as Spark writes their types, without those of the message."""
    schema = infer([json.dumps(value).encode() for value in values], headers=headers)
    return {field.name: field.dataType.simpleString() for field in schema if field.name not in OF_MESSAGE}


OF_MESSAGE = {"timestamp", "topic", "nsqd", "sequence", "headers", "_corrupt_record"}


def test_members_become_columns_between_those_of_message_and_corrupt_one():
    schema = infer([b'{"order": 7, "price": 1.5, "sku": "a", "paid": true}'])

    assert schema.simpleString() == (
        "struct<timestamp:timestamp,topic:string,nsqd:string,sequence:bigint,"
        "order:bigint,price:double,sku:string,paid:boolean,_corrupt_record:binary>"
    )


def test_headers_are_column_where_they_are_asked_for():
    assert "headers" in infer([b'{"a": 1}'], headers=True).names


def test_what_is_in_objects_and_lists_is_found_as_well():
    found = columns({"at": {"x": [1, 2.5], "to": [{"name": "a"}]}}, {"at": {"y": None}})

    assert found == {"at": "struct<x:array<double>,to:array<struct<name:string>>,y:string>"}


def test_numbers_of_both_kinds_have_fraction_and_large_ones_too():
    assert columns({"a": 1, "b": 1 << 70}, {"a": 1.5}) == {"a": "double", "b": "double"}


def test_majority_of_bodies_decides():
    assert columns({"a": 1}, {"a": "x"}, {"a": 2}) == {"a": "bigint"}
    assert columns({"a": "x"}, {"a": {}}, {"a": "y"}) == {"a": "string"}


def test_text_that_looks_like_a_time_stays_text():
    assert columns({"at": "2026-11-20 09:00:00"}) == {"at": "string"}


def test_member_that_is_always_null_is_text_and_empty_object_no_column():
    assert columns({"a": None, "b": {}, "c": [], "d": 1}) == {
        "a": "string",
        "c": "array<string>",
        "d": "bigint",
    }


def test_names_that_spark_would_mistake_for_each_other_are_had_once():
    assert columns({"Order": 1, "order": 2, "Topic": 3, "body": "x", "_Corrupt_Record": 4}) == {
        "Order": "bigint"
    }


def test_bodies_that_are_no_objects_say_nothing():
    assert infer([b"", b"5", b"[1]", b'{"a": NaN}', b"\xff", b"[" * 100_000, b"{}"]) is None
    assert infer([]) is None


@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from("abcd"),
            st.recursive(
                st.none()
                | st.booleans()
                | st.integers()
                | st.floats(allow_nan=False, allow_infinity=False)
                # Arrow does not accept single surrogates as text.
                | st.text(st.characters(exclude_categories=("Cs",)), max_size=3),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner),
                max_leaves=5,
            ),
        ),
        max_size=6,
    )
)
def test_whatever_is_found_can_be_read(values):
    schema = infer([json.dumps(value).encode() for value in values])

    assert schema is None or JsonColumns(schema)
