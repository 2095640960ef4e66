"""Infers the columns of JSON bodies from some of them. Pure.

The type of a member is the one that most bodies have; ``_corrupt_record`` receives the other bodies. Whole
and fractional numbers in one member make it a double. Texts stay texts, also if they contain numbers or
dates.
"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pyspark_nsq.source.columns import is_column
from pyspark_nsq.source.json_columns import CORRUPT
from pyspark_nsq.source.schema import HEADERS, SCHEMA_WITH_HEADERS

# Columns of every message, placed before those of its JSON.
OWN: Final = ("timestamp", "topic", "nsqd", "sequence")
_LONGS: Final = range(-(1 << 63), 1 << 63)
_STRUCT: Final = "struct"
_ARRAY: Final = "array"
_SIMPLE: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "long": LongType(),
    "double": DoubleType(),
    "string": StringType(),
}


def infer(bodies: Iterable[bytes], *, headers: bool = False) -> StructType | None:
    """Return a schema for ``bodyFormat=json``; None if no body is an object with members."""
    seen = _ObservedValues()
    for body in bodies:
        try:
            value = json.loads(body, parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            seen.add(value)
    found = seen.members_as_fields(top=True)
    if not found:
        return None
    own = [SCHEMA_WITH_HEADERS[name] for name in (*OWN, *((HEADERS,) if headers else ()))]
    return StructType([*own, *found, StructField(CORRUPT, BinaryType())])


def _refuse(constant: str) -> NoReturn:
    """Refuse NaN and the like, which other parsers do not accept as JSON. Raises ValueError."""
    raise ValueError(constant)


class _ObservedValues:
    """The values seen in one place of the bodies."""

    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()
        self._members: dict[str, _ObservedValues] = {}
        self._items: _ObservedValues | None = None

    def add(self, value: Any) -> None:
        kind = _kind(value)
        if kind is None:
            return
        self._kinds[kind] += 1
        if kind == _STRUCT:
            for name, member in value.items():
                self._members.setdefault(name, _ObservedValues()).add(member)
        elif kind == _ARRAY:
            self._items = self._items or _ObservedValues()
            for item in value:
                self._items.add(item)

    def type(self) -> DataType | None:
        """Return the type of most values; None if they are objects without members."""
        kinds = Counter(self._kinds)
        if kinds["double"]:
            kinds["double"] += kinds.pop("long", 0)
        # The name decides between equal counts, so that the order of bodies does not matter.
        kind = max(kinds, key=lambda name: (kinds[name], name), default="string")
        if kind == _STRUCT:
            fields = self.members_as_fields()
            return StructType(fields) if fields else None
        if kind == _ARRAY:
            items = self._items.type() if self._items else StringType()
            return ArrayType(items) if items else None
        return _SIMPLE[kind]

    def members_as_fields(self, *, top: bool = False) -> list[StructField]:
        """Return the members in order of appearance; of names that differ only in case, the first."""
        fields: dict[str, StructField] = {}
        for name, member in self._members.items():
            plain = name.lower()
            kind = member.type()
            if kind is None or plain in fields or (top and (is_column(plain) or plain == CORRUPT)):
                continue
            fields[plain] = StructField(name, kind)
        return list(fields.values())


def _kind(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "boolean"
        case int():
            return "long" if value in _LONGS else "double"
        case float():
            return "double"
        case str():
            return "string"
        case dict():
            return _STRUCT
        case _:
            return _ARRAY
