"""Frames as nsqd stores them become rows."""

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from nsqclient.wire.frames import FRAME_MESSAGE, encode_frame
from nsqclient.wire.message import MessageRecord
from pyspark_nsq.source.columns import ARROW_SCHEMA, ARROW_SCHEMA_WITH_HEADERS, MessageColumns, Origin
from pyspark_nsq.source.errors import OptionError
from pyspark_nsq.source.frames import decode_frames
from pyspark_nsq.source.schema import CALENDAR, SCHEMA, SCHEMA_WITH_HEADERS

SEQUENCE = 1_700_000_000_123_456
MESSAGE = MessageRecord(1_763_632_801_123_456_789, 2, b"%016x" % (617 << 54 | SEQUENCE), b"\x00body\xff")


def frame(message=MESSAGE):
    return encode_frame(FRAME_MESSAGE, message.encode())


def to_batch(messages, topic, channel, nsqd, columns=None):
    (batch,) = (columns or MessageColumns()).batches(messages, Origin(topic, channel, nsqd))
    return batch


def test_arrow_schemas_are_those_of_spark():
    for declared, used in ((SCHEMA, ARROW_SCHEMA), (SCHEMA_WITH_HEADERS, ARROW_SCHEMA_WITH_HEADERS)):
        assert to_arrow_schema(declared, timezone="UTC").equals(used)


def test_message_becomes_row():
    (row,) = to_batch(decode_frames(frame()), "orders", "archive", "127.0.0.1:4151").to_pylist()

    assert row == {
        "body": b"\x00body\xff",
        "message_id": f"{617 << 54 | SEQUENCE:016x}",
        "timestamp": datetime(2025, 11, 20, 10, 0, 1, 123456, tzinfo=UTC),
        "attempts": 2,
        "topic": "orders",
        "channel": "archive",
        "nsqd": "127.0.0.1:4151",
        "sequence": SEQUENCE,
    }


def test_rows_keep_order_of_log():
    messages = [MessageRecord(0, 1, b"%016x" % seq, b"%d" % seq) for seq in range(3)]

    batch = to_batch(decode_frames(b"".join(map(frame, messages))), "t", "", "n:1")

    assert batch.column("sequence").to_pylist() == [0, 1, 2]
    assert batch.column("body").to_pylist() == [b"0", b"1", b"2"]
    assert batch.column("channel").to_pylist() == [None] * 3


def test_schema_of_user_chooses_columns_and_their_order():
    columns = MessageColumns.of(StructType().add(SCHEMA["sequence"]).add(SCHEMA["body"]))
    batch = to_batch(decode_frames(frame()), "t", "", "n:1", columns)

    assert batch.to_pylist() == [{"sequence": SEQUENCE, "body": b"\x00body\xff"}]
    assert batch.schema.names == ["sequence", "body"]


@given(st.lists(st.integers(-(10**17), 4 * 10**18), min_size=1, max_size=20))
@example([0, -1, 86_400_000_000_000 - 1000, 86_400_000_000_000, -86_400_000_000_000, -86_400_000_001_000])
def test_day_and_hour_are_those_of_timestamp_in_utc(moments_ns):
    messages = [MessageRecord(moment, 1, b"%016x" % 1, b"") for moment in moments_ns]
    columns = MessageColumns.of(StructType([SCHEMA["timestamp"], *CALENDAR]))

    batch = to_batch(decode_frames(b"".join(map(frame, messages))), "t", "", "n:1", columns)

    for row in batch.to_pylist():
        assert (row["date"], row["hour"]) == (row["timestamp"].date(), f"{row['timestamp']:%H}")


def test_batch_has_nullability_of_schema():
    """Spark compares the Arrow types of a batch with the schema, including whether they may be null."""
    schema = StructType().add("body", "binary", nullable=False).add("topic", "string")

    batch = to_batch(decode_frames(frame()), "t", "", "n:1", MessageColumns.of(schema))

    assert [field.nullable for field in batch.schema] == [False, True]


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("customer", "the schema has a column 'customer', which a message does not have; there are: body, "),
        ("body", "the schema has the column body as string, but it is binary"),
    ],
)
def test_column_that_messages_do_not_have_is_named(schema, sentence):
    with pytest.raises(OptionError, match=sentence):
        MessageColumns.of(StructType().add(schema, "string"))
