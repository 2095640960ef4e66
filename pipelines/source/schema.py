"""The columns, as Spark and as Arrow name them, and message frames turned into them."""

from typing import Final

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType, TimestampType

from nsqcore.wire.frames import FRAME_MESSAGE, FrameError, FrameParser
from nsqcore.wire.message import Message

# The same columns twice: Spark refuses a batch whose Arrow types are not exactly what follows from its own.
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

# The lower 54 bits of a message id are the sequence, the upper 10 the node.
_SEQUENCE_MASK: Final = (1 << 54) - 1


def decode_frames(frames: bytes) -> list[Message]:
    """The messages of whole message frames. Raises ValueError when the bytes are something else."""
    parser = FrameParser()
    messages: list[Message] = []
    for frame_type, data in parser.feed(frames):
        if frame_type != FRAME_MESSAGE:
            raise FrameError(f"a frame of type {frame_type} is not a message")
        messages.append(Message.decode(data))
    if parser.unfinished:
        raise FrameError(f"the last {parser.unfinished} bytes are not a whole frame")
    return messages


def to_batch(messages: list[Message], topic: str, channel: str, nsqd: str) -> pa.RecordBatch:
    """One row for each message, in their order."""
    count = len(messages)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([message.body for message in messages], pa.binary()),
            pa.array([message.id for message in messages], pa.string()),
            pa.array(
                [message.timestamp_ns // 1000 for message in messages], ARROW_SCHEMA.field("timestamp").type
            ),
            pa.array([message.attempts for message in messages], pa.int32()),
            pa.repeat(pa.scalar(topic, pa.string()), count),
            # A batch read may have no channel.
            pa.repeat(pa.scalar(channel or None, pa.string()), count),
            pa.repeat(pa.scalar(nsqd, pa.string()), count),
            pa.array([int(message.id, 16) & _SEQUENCE_MASK for message in messages], pa.int64()),
        ],
        schema=ARROW_SCHEMA,
    )
