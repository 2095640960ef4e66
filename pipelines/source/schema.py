"""The columns, as Spark and as Arrow name them, and messages turned into them."""

from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType, TimestampType

from nsqcore.wire.message import MESSAGE_ID_BYTES
from pipelines.source.frames import Messages

# The same columns for Spark and for Arrow: Spark refuses a batch whose Arrow types differ from its own.
SCHEMA: Final = (
    StructType()
    .add("body", BinaryType())
    .add("message_id", StringType())
    .add("timestamp", TimestampType())
    .add("attempts", IntegerType())
    .add("topic", StringType())
    .add("channel", StringType())
    .add("nsqd", StringType())
    .add("sequence", LongType())
)
ARROW_SCHEMA: Final = pa.schema(
    [
        ("body", pa.binary()),
        ("message_id", pa.string()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("attempts", pa.int32()),
        ("topic", pa.string()),
        ("channel", pa.string()),
        ("nsqd", pa.string()),
        ("sequence", pa.int64()),
    ]
)
# Columns whose value differs in every row; the others repeat a few values.
UNIQUE: Final = ("body", "message_id", "timestamp", "sequence")
# Messages are looked up by time or by sequence, never by these columns.
NOT_SEARCHED: Final = ("body", "message_id")


def to_batch(messages: Messages, topic: str, channel: str, nsqd: str) -> pa.RecordBatch:
    """One row for each message, in their order."""
    count = len(messages.sequences)
    return pa.RecordBatch.from_arrays(
        [
            messages.bodies,
            _ids(messages.ids, count),
            pa.array(messages.timestamps_us).cast(ARROW_SCHEMA.field("timestamp").type),
            pa.array(messages.attempts),
            pa.repeat(pa.scalar(topic, pa.string()), count),
            # A batch read may have no channel.
            pa.repeat(pa.scalar(channel or None, pa.string()), count),
            pa.repeat(pa.scalar(nsqd, pa.string()), count),
            pa.array(messages.sequences),
        ],
        schema=ARROW_SCHEMA,
    )


def _ids(ids: bytes, count: int) -> pa.Array:
    cuts = np.arange(0, (count + 1) * MESSAGE_ID_BYTES, MESSAGE_ID_BYTES, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(cuts), pa.py_buffer(ids)])
