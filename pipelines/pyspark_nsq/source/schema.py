"""The columns of a row in Spark's types. Pure, and without Arrow, for processes that need no more."""

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADERS: Final = "headers"
# Columns with the day and the hour of the timestamp, on request.
DATE: Final = "date"
HOUR: Final = "hour"

# Spark refuses a batch whose Arrow types differ from these; columns.py has the Arrow types.
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
# The same with the headers of messages, on request.
SCHEMA_WITH_HEADERS: Final = StructType([*SCHEMA, StructField(HEADERS, MapType(StringType(), StringType()))])
# The day and the hour of the timestamp in UTC, if a schema names them: the folders of an archive, without a
# calculation for each row. They are never null, so Spark's writer need not check for empty names.
CALENDAR: Final = StructType().add(DATE, DateType(), nullable=False).add(HOUR, StringType(), nullable=False)
