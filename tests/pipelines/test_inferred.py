"""Columns inferred from bodies: the majority decides, and all bodies can be read."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_nsq.source.inferred import infer
from pyspark_nsq.source.json_columns import JsonColumns

OF_MESSAGE = {"timestamp", "topic", "nsqd", "sequence", "headers", "_corrupt_record"}


def test_members_become_columns_after_those_of_message():
    schema = infer([b'{"order": 7, "price": 1.5, "sku": "a", "paid": true}'])

    assert schema.simpleString() == (
        "struct<timestamp:timestamp,topic:string,nsqd:string,sequence:bigint,"
        "order:bigint,price:double,sku:string,paid:boolean,_corrupt_record:binary>"
    )


@pytest.mark.parametrize(
    ("bodies", "found"),
    [
        (
            [{"at": {"x": [1, 2.5], "to": [{"name": "a"}]}}, {"at": {"y": None}}],
            {"at": "struct<x:array<double>,to:array<struct<name:string>>,y:string>"},
        ),
        ([{"a": 1, "b": 1 << 70}, {"a": 1.5}], {"a": "double", "b": "double"}),
        # The majority of bodies decides.
        ([{"a": 1}, {"a": "x"}, {"a": 2}], {"a": "bigint"}),
        ([{"a": "x"}, {"a": {}}, {"a": "y"}], {"a": "string"}),
        ([{"at": "2026-11-20 09:00:00"}], {"at": "string"}),
        ([{"a": None, "b": {}, "c": [], "d": 1}], {"a": "string", "c": "array<string>", "d": "bigint"}),
        # Spark does not distinguish names by case, and some are columns of the message.
        ([{"Order": 1, "order": 2, "Topic": 3, "body": "x", "_Corrupt_Record": 4}], {"Order": "bigint"}),
    ],
)
def test_type_of_member_is_that_of_most_bodies(bodies, found):
    schema = infer([json.dumps(body).encode() for body in bodies], headers=True)

    assert "headers" in schema.names
    members = [field for field in schema if field.name not in OF_MESSAGE]
    assert {field.name: field.dataType.simpleString() for field in members} == found


def test_bodies_without_objects_give_no_schema():
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
def test_inferred_schema_can_be_read(values):
    schema = infer([json.dumps(value).encode() for value in values])

    assert schema is None or JsonColumns(schema)
