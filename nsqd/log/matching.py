"""Filters for messages: by bytes in the body, or by a value in its JSON. Pure.

Most pages of a log hold no match. So a whole page is first searched, as it lies on disk, for bytes that a
match must have: this search runs in C, and a page without these bytes is not decoded.
"""

import json
from typing import Any, Final

import msgspec

_EXISTS: Final = object()


class BadFilter(ValueError):
    """The text is not a filter; the error says so in a sentence."""


class Contains:
    """The body contains these bytes."""

    def __init__(self, needle: bytes) -> None:
        self._needle = needle

    def may_be_in(self, data: bytes) -> bool:
        """Whether *data* could contain a body that matches."""
        return self._needle in data

    def matches(self, body: bytes | memoryview) -> bool:
        return self._needle in bytes(body)


class JsonValue:
    """The body is JSON with a value at a path; without a given value, anything but null matches."""

    def __init__(self, path: tuple[str, ...], value: str | None) -> None:
        self._path = path
        self._text = value
        self._value = _EXISTS if value is None else _parsed(value)
        # A name that needs no escape is in the JSON either as it is or with escapes, which have a backslash.
        self._name = json.dumps(path[-1], ensure_ascii=False).encode()
        self._prunes = "\\" not in path[-1] and not path[-1].isdecimal()

    def may_be_in(self, data: bytes) -> bool:
        """Whether *data* could contain a body that matches."""
        return not self._prunes or self._name in data or b"\\" in data

    def matches(self, body: bytes | memoryview) -> bool:
        try:
            found: Any = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        for name in self._path:
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                return False
        if self._value is _EXISTS:
            return found is not None
        return (
            (type(found), found) == (type(self._value), self._value)
            or found == self._text
            or (_is_number(found) and _is_number(self._value) and found == self._value)
        )


class All:
    """The body matches each of several filters."""

    def __init__(self, *filters: "Contains | JsonValue") -> None:
        self._filters = filters

    def may_be_in(self, data: bytes) -> bool:
        """Whether *data* could contain a body that matches."""
        return all(one.may_be_in(data) for one in self._filters)

    def matches(self, body: bytes | memoryview) -> bool:
        return all(one.matches(body) for one in self._filters)


def parse_json_filter(text: str) -> JsonValue:
    """Read a filter such as ``user.id=42``, ``state=failed`` or only ``error``. Raises BadFilter."""
    path, equals, value = text.partition("=")
    names = tuple(path.split("."))
    if not all(names):
        raise BadFilter(f"{text[:60]!r} is no path in JSON; write name, name.name=value or name.0=value")
    return JsonValue(names, value if equals else None)


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
