"""Frames as nsqd stores them become rows."""

from datetime import UTC, datetime

from pyspark.sql.pandas.types import to_arrow_schema

from nsqcore.wire.frames import FRAME_MESSAGE, encode_frame
from nsqcore.wire.message import Message
from pipelines.source.frames import decode_frames
from pipelines.source.schema import ARROW_SCHEMA, SCHEMA, to_batch

SEQUENCE = 1_700_000_000_123_456
MESSAGE = Message(1_763_632_801_123_456_789, 2, b"%016x" % (617 << 54 | SEQUENCE), b"\x00body\xff")


def frame(message=MESSAGE):
    return encode_frame(FRAME_MESSAGE, message.encode())


def test_spark_takes_the_arrow_batches_for_what_was_declared():
    declared = to_arrow_schema(SCHEMA, timezone="UTC")

    assert declared.equals(ARROW_SCHEMA)


def test_a_message_becomes_a_row():
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


def test_rows_keep_the_order_of_the_log():
    messages = [Message(0, 1, b"%016x" % seq, b"%d" % seq) for seq in range(3)]

    batch = to_batch(decode_frames(b"".join(map(frame, messages))), "t", "", "n:1")

    assert batch.column("sequence").to_pylist() == [0, 1, 2]
    assert batch.column("body").to_pylist() == [b"0", b"1", b"2"]
    assert batch.column("channel").to_pylist() == [None] * 3
