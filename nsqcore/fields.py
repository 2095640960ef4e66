"""Reading the fields of a JSON object as Go does: absence and ``null`` are the zero value.

A field of another type raises TypeError with its name; the caller decides what that means.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

Json: TypeAlias = Mapping[str, Any]


def text(fields: Json, key: str) -> str:
    value = fields.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{key} is not a string")
    # JSON can contain half of a surrogate pair, which no encoder would accept later.
    return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def integer(fields: Json, key: str) -> int:
    """An integer of 64 bits, written without a fraction or an exponent."""
    value = fields.get(key)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise TypeError(f"{key} is not an integer")
    return value


def number(fields: Json, key: str) -> int:
    """A number in any notation, without its fraction."""
    value = fields.get(key)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{key} is not a number")
    return int(value)


def flag(fields: Json, key: str) -> bool:
    value = fields.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise TypeError(f"{key} is not a boolean")
    return value


def objects(fields: Json, key: str) -> list[Json]:
    """A list of objects; ``null`` and absence are the empty list."""
    value = fields.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise TypeError(f"{key} is not a list of objects")
    return value


def names(fields: Json, key: str) -> tuple[str, ...]:
    """A list of strings; ``null`` and absence are the empty list."""
    value = fields.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError(f"{key} is not a list of strings")
    return tuple(value)
