"""JSON bodies as columns: each row has the values of its own body, whatever the other bodies are."""

import json
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DateType,
    DayTimeIntervalType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from nsqclient.wire.frames import FRAME_MESSAGE, encode_frame
from nsqclient.wire.message import MessageRecord
from pyspark_nsq.source.columns import Origin
from pyspark_nsq.source.errors import OptionError
from pyspark_nsq.source.frames import decode_frames
from pyspark_nsq.source.json_columns import JsonColumns

SCHEMA = StructType().add("a", LongType()).add("b", StringType()).add("_corrupt_record", "binary")


def parse(schema, *bodies):
    frames = b"".join(
        encode_frame(FRAME_MESSAGE, MessageRecord(0, 1, b"%016x" % n, body).encode())
        for n, body in enumerate(bodies)
    )
    (batch,) = JsonColumns(schema).batches(decode_frames(frames), Origin("t", "c", "n:1"))
    assert batch.num_rows == len(bodies)
    return batch.to_pylist()


def test_members_and_dates_at_any_depth_become_columns_beside_those_of_message():
    schema = (
        StructType()
        .add("a", LongType())
        .add("d", DateType())
        .add("in", StructType().add("days", ArrayType(DateType())).add("at", TimestampType()))
        .add("sequence", LongType())
        .add("_corrupt_record", "binary")
    )
    whole = b'{"a": 1, "d": "2026-11-20", "in": {"days": ["1969-12-31", null], "at": "2026-11-20T09:00:00"}}'
    rows = parse(schema, whole, b'{"a": 2, "d": "soon"}', b"{}", b'{"d": "2026-11-20 23:59:59", "in": {}}')

    moment = datetime(2026, 11, 20, 9, tzinfo=UTC)
    assert [tuple(row.values()) for row in rows] == [
        (1, date(2026, 11, 20), {"days": [date(1969, 12, 31), None], "at": moment}, 0, None),
        (None, None, None, 1, b'{"a": 2, "d": "soon"}'),
        (None, None, None, 2, None),
        (None, date(2026, 11, 20), {"days": None, "at": None}, 3, None),
    ]


TRICKS = [
    *(b"", b" ", b"5", b"null", b"[]", b"[1", b"{", b"}", b'{"a":1', b'{"a":1}}', b'{"a":1} {"a":2}'),
    *(b'{"a":1}\n{"a":2}', b'{"a":1}}\n{"b":{"a":2}', b'{"b":"', b'"}', b'{"a":"text"}', b'{"a":1.5}'),
    *(b"\xff", b'{"b":"\xff"}', b"nothing", b'{"a":99999999999999999999}'),
]


@settings(deadline=None)  # the first call loads modules, which takes long
@given(st.lists(st.sampled_from(TRICKS) | st.integers(-99, 99), max_size=30))
def test_corrupt_body_leaves_other_rows_alone(mixed):
    objects = {one: json.dumps({"a": one, "b": str(one)}).encode() for one in mixed if isinstance(one, int)}
    bodies = [one if isinstance(one, bytes) else objects[one] for one in mixed]
    rows = parse(SCHEMA, *bodies) if bodies else []

    for one, row in zip(mixed, rows, strict=True):
        if isinstance(one, int):
            assert row == {"a": one, "b": str(one), "_corrupt_record": None}
        else:
            assert row["a"] is None
            assert row["_corrupt_record"] in {one, None}


# The body may have lines.
GOOD = b'{\n  "a": 1,\n  "b": "x"\n}'


@pytest.mark.parametrize("body", [trick for trick in TRICKS if trick != b"null"])
def test_corrupt_body_is_kept(body):
    assert [tuple(row.values()) for row in parse(SCHEMA, GOOD, body)] == [(1, "x", None), (None, None, body)]


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (StructType().add("timestamp", TimestampType()), "has no column for what is in the JSON"),
        (
            StructType().add("a", LongType()).add("nsqd", LongType()),
            "the schema has the column nsqd as bigint",
        ),
        (
            StructType().add("a", LongType()).add("_corrupt_record", LongType()),
            "_corrupt_record must be binary or string",
        ),
        (StructType().add("m", MapType(StringType(), LongType())), "cannot read column m of type map<"),
        (
            StructType().add("m", ArrayType(StructType().add("x", MapType(StringType(), LongType())))),
            "cannot read column m of type list<",
        ),
        (StructType().add("t", DayTimeIntervalType()), "cannot read column t of type duration"),
        (StructType().add("c", CharType(3)), "cannot read column c of type char"),
        (StructType().add("a", LongType(), nullable=False), "in column a the schema has a as not null"),
        (
            StructType().add("a", StructType().add("b", LongType(), nullable=False)),
            "in column a the schema has b as not null",
        ),
        (
            StructType().add("a", LongType()).add("_corrupt_record", "binary", nullable=False),
            "in column _corrupt_record the schema has _corrupt_record as not null",
        ),
    ],
)
def test_unusable_schema_is_named(schema, sentence):
    with pytest.raises(OptionError, match=sentence):
        JsonColumns(schema)


def test_batch_has_types_of_schema():
    (batch,) = JsonColumns(SCHEMA).batches(
        decode_frames(encode_frame(FRAME_MESSAGE, MessageRecord(0, 1, b"%016x" % 1, b"{}").encode())),
        Origin("t", "", "n:1"),
    )

    assert batch.schema.types == [pa.int64(), pa.string(), pa.binary()]
