"""The columns of a row in Arrow's types, and how messages become columns."""

from collections.abc import Container, Iterator
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType, StructType

from nsqclient.wire.message import MESSAGE_ID_BYTES
from pyspark_nsq.source.arrays import equally_long, numbers, repeated
from pyspark_nsq.source.errors import OptionError
from pyspark_nsq.source.frames import Messages
from pyspark_nsq.source.headers import HEADERS_TYPE
from pyspark_nsq.source.schema import CALENDAR, DATE, HEADERS, HOUR, SCHEMA_WITH_HEADERS

# The columns of schema.py; Spark refuses a batch whose Arrow types differ from its own.
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
ARROW_SCHEMA_WITH_HEADERS: Final = ARROW_SCHEMA.append(pa.field(HEADERS, HEADERS_TYPE))
# Columns whose value differs in every row; the others repeat a few values.
UNIQUE: Final = ("body", "message_id", "timestamp", "sequence")
# Messages are looked up by time or by sequence, never by these columns; the last two have the same value in
# all files of an archive.
NOT_SEARCHED: Final = ("body", "message_id", "topic", "channel")
_TYPES: Final = {column.name: column.dataType for column in SCHEMA_WITH_HEADERS}
# Also columns that exist only if a schema names them; with JSON bodies such names are members.
_NAMED_TYPES: Final = _TYPES | {column.name: column.dataType for column in CALENDAR}
_NAMED: Final = ARROW_SCHEMA_WITH_HEADERS.append(pa.field(DATE, pa.date32())).append(
    pa.field(HOUR, pa.string())
)
_HOUR_US: Final = 3_600_000_000
# The texts of all hours of a day.
_HOURS: Final = np.array([f"{hour:02}".encode() for hour in range(24)])


class Origin(NamedTuple):
    """The values that all messages of a range share."""

    topic: str
    channel: str
    nsqd: str


class Columns(Protocol):
    """Turns messages into columns."""

    @property
    def has_headers(self) -> bool:
        """Whether a column needs the headers of messages."""

    def batches(self, messages: Messages, origin: Origin) -> Iterator[pa.RecordBatch]: ...


class MessageColumns:
    """The columns of messages themselves: all of them, or those that the user's schema names."""

    def __init__(
        self, names: tuple[str, ...] = tuple(ARROW_SCHEMA.names), never_null: Container[str] = ()
    ) -> None:
        """*never_null* are the columns that Spark expects without nulls; it compares that as well."""
        self._names = names
        self._schema = pa.schema([_NAMED.field(name).with_nullable(name not in never_null) for name in names])
        self.has_headers = HEADERS in names

    @classmethod
    def of(cls, schema: StructType) -> "MessageColumns":
        """Return the columns of *schema*. Raises OptionError if a message has no such column."""
        for column in schema:
            check_column(column.name, column.dataType)
        return cls(tuple(schema.names), {column.name for column in schema if not column.nullable})

    @classmethod
    def all(cls, *, headers: bool) -> "MessageColumns":
        """Return all columns; that of headers only on request."""
        return cls(tuple((ARROW_SCHEMA_WITH_HEADERS if headers else ARROW_SCHEMA).names))

    def batches(self, messages: Messages, origin: Origin) -> Iterator[pa.RecordBatch]:
        """Yield one row for each message, in their order."""
        arrays = [column(name, messages, origin) for name in self._names]
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def check_column(name: str, kind: DataType) -> None:
    """Raise OptionError unless messages have a column of this name and type."""
    if name not in _NAMED_TYPES:
        raise OptionError(
            f"the schema has a column {name!r}, which a message does not have; there are: "
            f"{', '.join(_NAMED_TYPES)} (with bodyFormat=json also what the JSON of the body has)"
        )
    if kind != _NAMED_TYPES[name]:
        raise OptionError(
            f"the schema has the column {name} as {kind.simpleString()}, "
            f"but it is {_NAMED_TYPES[name].simpleString()}"
        )


def is_column(name: str) -> bool:
    return name in _TYPES


def column(name: str, messages: Messages, origin: Origin) -> Any:
    """Return the values of one column."""
    count = len(messages.sequences)
    match name:
        case "body":
            return messages.bodies
        case "message_id":
            return equally_long(messages.ids, MESSAGE_ID_BYTES, count, pa.string())
        case "timestamp":
            return numbers(messages.timestamps_us, ARROW_SCHEMA.field(name).type)
        case "attempts":
            return numbers(messages.attempts, pa.int32())
        case "sequence":
            return numbers(messages.sequences, pa.int64())
        case "headers":
            return messages.headers
        case "date":
            return numbers((messages.timestamps_us // (24 * _HOUR_US)).astype(np.int32), pa.date32())
        case "hour":
            hours = _HOURS[messages.timestamps_us // _HOUR_US % 24]
            return equally_long(hours.tobytes(), _HOURS.itemsize, count, pa.string())
        case "channel":
            # A batch read may have no channel.
            return repeated(origin.channel or None, count, pa.string())
        case _:
            return repeated(origin.topic if name == "topic" else origin.nsqd, count, pa.string())
