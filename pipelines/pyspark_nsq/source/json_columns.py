"""Turns bodies that are JSON into columns: ``bodyFormat=json`` with the schema that the user gives.

A column of the message itself (``timestamp``, ``nsqd`` and so on, with the same type) keeps that meaning;
every other column is the member of that name in the JSON object. Arrow parses the bodies of a whole answer at
once. If one of them is no JSON object of these types, the bodies are halved until it is found. Its columns
are null then, and ``_corrupt_record``, if the schema has it, is the body.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from pyspark_nsq.source.arrays import repeated
from pyspark_nsq.source.columns import Origin, check_column, column, is_column
from pyspark_nsq.source.errors import OptionError
from pyspark_nsq.source.frames import Messages
from pyspark_nsq.source.schema import HEADERS

# The column with the bodies that cannot be parsed.
CORRUPT: Final = "_corrupt_record"
# Each body is wrapped as the only member of an object. So no body can end its neighbour's object or begin
# another one, and if there are as many rows as bodies, each body has one row.
_BEFORE: Final = b'{"b":'
_AFTER: Final = b"}\n"
_MEMBER: Final = "b"


class JsonColumns:
    """Columns from the JSON of the body, and columns of the message itself."""

    def __init__(self, schema: StructType, *, headers: bool = False) -> None:
        """Raises OptionError. Without *headers* a column of that name is a member of the JSON."""
        self.has_headers = False
        self._schema = pa.schema([_field(one) for one in schema])
        self._own: list[str] = []
        for one, field in zip(schema, self._schema, strict=True):
            if one.name == CORRUPT:
                if one.dataType not in (BinaryType(), StringType()):
                    raise OptionError(f"the column {CORRUPT} must be binary or string")
                _check_nullable(one.name, field)
            elif is_column(one.name) and (headers or one.name != HEADERS):
                check_column(one.name, one.dataType)
                self._own.append(one.name)
                self.has_headers = self.has_headers or one.name == HEADERS
        parsed = [one for one in self._schema if one.name != CORRUPT and one.name not in self._own]
        if not parsed:
            raise OptionError(
                "option bodyFormat is json, but the schema has no column for what is in the JSON"
            )
        for one in parsed:
            _check_readable(one)
            _check_nullable(one.name, one)
        self._parsed = pa.struct([_as_parsed(one) for one in parsed])

    def batches(self, messages: Messages, origin: Origin) -> Iterator[pa.RecordBatch]:
        """Yield one row for each message, in their order."""
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
        """Return the JSON objects as structs; null for a body that is none."""
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
        # JSON texts may contain bytes that are no valid text, which Spark would pass on.
        found.validate(full=True)
        return found


class _OtherCountError(Exception):
    """At least one body was not exactly one value."""


def _wrapped(bodies: Any) -> Any:
    """Join all bodies into one text, each wrapped in an object."""
    count = len(bodies)
    before, after = (repeated(one, count, pa.binary()) for one in (_BEFORE, _AFTER))
    joined = pc.binary_join_element_wise(before, bodies, after, repeated(b"", count, pa.binary()))
    cuts = np.frombuffer(joined.buffers()[1], np.int32, count + 1, joined.offset * 4)
    return joined.buffers()[2][int(cuts[0]) : int(cuts[-1])]


def _field(column: StructField) -> Any:
    """Return the column as Arrow has it. Raises OptionError."""
    try:
        return to_arrow_schema(StructType([column]), timezone="UTC").field(0)
    except PySparkTypeError as error:
        raise _unreadable(column.name, column.dataType.simpleString()) from error


def _unreadable(name: str, kind: object) -> OptionError:
    return OptionError(f"option bodyFormat is json, which cannot read column {name} of type {kind}")


def _check_nullable(name: str, field: Any) -> None:
    """Raise OptionError if *field*, or a part of it, may not be null: Spark fails where a body lacks it."""
    if not field.nullable:
        raise OptionError(
            f"option bodyFormat is json, and any member may be missing, but in column {name} the schema has "
            f"{field.name} as not null"
        )
    for part in _parts(field.type):
        _check_nullable(name, part)


def _check_readable(field: Any) -> None:
    """Raise OptionError if Arrow's parser does not know the type of *field*."""
    try:
        pj.read_json(
            pa.BufferReader(b"{}"),
            parse_options=pj.ParseOptions(explicit_schema=pa.schema([_as_parsed(field)])),
        )
    except NotImplementedError as error:
        raise _unreadable(field.name, field.type) from error


def _as_parsed(field: Any) -> Any:
    """Return the field to parse a column as: Arrow's parser has no zones, and dates only as numbers.

    Raises NotImplementedError if there is none.
    """
    kind = field.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        kind = pa.timestamp("us")
    elif pa.types.is_struct(kind):
        kind = pa.struct([_as_parsed(part) for part in _parts(kind)])
    elif pa.types.is_list(kind):
        kind = pa.list_(_as_parsed(kind.value_field))
    elif pa.types.is_time(kind):
        raise NotImplementedError  # Arrow would take numbers only
    return pa.field(field.name, kind)


def _parts(kind: Any) -> list[Any]:
    return [kind.field(number) for number in range(kind.num_fields)]


def _where_null(parsed: Any, bodies: Any, kind: Any) -> Any:
    """Return the bodies that could not be parsed, null for the others."""
    bad = pc.if_else(pc.is_null(parsed), bodies, pa.nulls(len(bodies), pa.binary()))
    if pa.types.is_binary(kind):
        return bad
    try:
        return bad.cast(kind)
    except pa.ArrowInvalid:
        pass  # some of them are no valid text
    texts = [None if body is None else body.decode("utf-8", "replace") for body in bad.to_pylist()]
    return pa.array(texts, kind)
