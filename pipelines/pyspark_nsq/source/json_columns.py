"""Bodies that are JSON, as columns: ``bodyFormat=json`` with the schema that the user gives.

A column that a message has by itself (``timestamp``, ``nsqd`` and so on, of the same type) is that one; every
other is the member of that name in the JSON object. Arrow parses the bodies of a whole answer at once. When
one of them is no JSON object of these types, the bodies are halved until it stands alone: its columns are
null then, and ``_corrupt``, if the schema has it, is the body.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructType

from pyspark_nsq.source.arrays import repeated
from pyspark_nsq.source.columns import Origin, check_column, column, is_column
from pyspark_nsq.source.errors import OptionError
from pyspark_nsq.source.frames import Messages
from pyspark_nsq.source.names import HEADERS

# The body as it came, where it cannot be used.
CORRUPT: Final = "_corrupt"
# Each body is the one member of an object of its own. So no body can end the object of another one or begin
# one more, and as many rows as bodies means one row for each.
_BEFORE: Final = b'{"b":'
_AFTER: Final = b"}\n"
_MEMBER: Final = "b"


class JsonColumns:
    """Columns from the JSON of the body, beside those of the message."""

    def __init__(self, schema: StructType, *, headers: bool = False) -> None:
        """Raises OptionError. Only with *headers* a column of that name is not from the JSON."""
        self.has_headers = False
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._own: list[str] = []
        for one in schema:
            if one.name == CORRUPT:
                if one.dataType not in (BinaryType(), StringType()):
                    raise OptionError(f"the column {CORRUPT} must be binary or string")
            elif is_column(one.name) and (headers or one.name != HEADERS):
                check_column(one.name, one.dataType)
                self._own.append(one.name)
                self.has_headers = self.has_headers or one.name == HEADERS
        parsed = [one for one in self._schema if one.name != CORRUPT and one.name not in self._own]
        if not parsed:
            raise OptionError(
                "option bodyFormat is json, but the schema has no column for what is in the JSON"
            )
        self._parsed = pa.struct([_as_parsed(one) for one in parsed])

    def batches(self, messages: Messages, origin: Origin) -> Iterator[pa.RecordBatch]:
        """One row for each message, in their order."""
        bodies = messages.bodies
        parsed = self._parse(bodies)
        arrays = []
        for one in self._schema:
            if one.name == CORRUPT:
                arrays.append(_where_null(parsed, bodies, one.type))
            elif one.name in self._own:
                arrays.append(column(one.name, messages, origin))
            else:
                arrays.append(pc.struct_field(parsed, one.name).cast(one.type))
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _parse(self, bodies: Any) -> Any:
        """The JSON objects as structs; null where a body is none."""
        try:
            return self._parse_all(bodies)
        except (pa.ArrowInvalid, _OtherCountError):
            if len(bodies) == 1:
                return pa.nulls(1, self._parsed)
        half = len(bodies) // 2
        return pa.concat_arrays([self._parse(bodies.slice(0, half)), self._parse(bodies.slice(half))])

    def _parse_all(self, bodies: Any) -> Any:
        text = _wrapped(bodies)
        table = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=max(len(text), 1)),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema([(_MEMBER, self._parsed)]),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
        if table.num_rows != len(bodies):
            raise _OtherCountError
        found = table.column(_MEMBER).combine_chunks()
        found = found.chunk(0) if isinstance(found, pa.ChunkedArray) else found
        # Texts of JSON may hold bytes that are no text, which Spark would pass on.
        found.validate(full=True)
        return found


class _OtherCountError(Exception):
    """A body was not one value."""


def _wrapped(bodies: Any) -> Any:
    """All bodies as one text, each in an object of its own."""
    count = len(bodies)
    before, after = (repeated(one, count, pa.binary()) for one in (_BEFORE, _AFTER))
    joined = pc.binary_join_element_wise(before, bodies, after, repeated(b"", count, pa.binary()))
    cuts = np.frombuffer(joined.buffers()[1], np.int32, count + 1, joined.offset * 4)
    return joined.buffers()[2][int(cuts[0]) : int(cuts[-1])]


def _as_parsed(one: Any) -> Any:
    """The type to parse a column as: Arrow's parser has no zones, and a member may be missing."""
    kind = pa.timestamp("us") if pa.types.is_timestamp(one.type) else one.type
    return pa.field(one.name, kind)


def _where_null(parsed: Any, bodies: Any, kind: Any) -> Any:
    """The bodies that could not be used."""
    bad = pc.if_else(pc.is_null(parsed), bodies, pa.nulls(len(bodies), pa.binary()))
    if pa.types.is_binary(kind):
        return bad
    try:
        return bad.cast(kind)
    except pa.ArrowInvalid:
        pass  # some of them are no text
    texts = [None if body is None else body.decode("utf-8", "replace") for body in bad.to_pylist()]
    return pa.array(texts, kind)
