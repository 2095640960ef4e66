"""The columns of a row as Spark names them. Pure, and without Arrow: for a process that needs no more."""

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_nsq.source.names import HEADERS

# Spark refuses a batch whose Arrow types differ from these; columns.py has them.
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
# The same with the headers of messages, for who asks for them.
SCHEMA_WITH_HEADERS: Final = StructType([*SCHEMA, StructField(HEADERS, MapType(StringType(), StringType()))])
