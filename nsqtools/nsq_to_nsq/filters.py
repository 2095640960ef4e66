"""Filters messages: JSON objects with a field, or a value in it, reduced to some of their fields. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

# Characters that must not occur in JSON inside HTML or a script, with the escapes that Go writes.
_ESCAPED: Final = {character: f"\\u{ord(character):04x}" for character in "&<>\u2028\u2029"}
_ESCAPED_PATTERN: Final = re.compile("[&<>\u2028\u2029]")
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")

# Numbers are written in full from 1e-6 up to below 1e21.
_MIN_EXPONENT: Final = -6
_MAX_EXPONENT: Final = 21


class TooDeep(Exception):
    """The body may be JSON, but is nested deeper than can be read here."""


class NotAnObject(Exception):
    """The body is no JSON object, so it has no fields to check."""


@dataclass(frozen=True, slots=True)
class JsonFilter:
    """The three flags about JSON; without any of them a body passes unchanged."""

    require_field: str = ""
    require_value: str = ""
    fields: tuple[str, ...] = ()

    @property
    def reads_json(self) -> bool:
        return bool(self.require_field or self.fields)

    def apply(self, body: bytes) -> bytes | None:
        """Return the body to send, or None to drop it; NotAnObject or TooDeep when it cannot be read."""
        if not self.reads_json:
            return body
        record = parse_object(body)
        try:
            return self._passed(record, body)
        except RecursionError as error:  # less deep than the parser's limit, because writing needs more stack
            raise TooDeep from error

    def _passed(self, record: Mapping[str, Any], body: bytes) -> bytes | None:
        if self.require_field:
            if self.require_field not in record:
                return None
            if self.require_value and not equals(record[self.require_field], self.require_value):
                return None
        if not self.fields:
            return body
        return encode({name: record[name] for name in self.fields if name in record}).encode()


def parse_object(body: bytes) -> Mapping[str, Any]:
    """Read a JSON object; its numbers stay exact. Raises NotAnObject or TooDeep."""
    try:
        record = json.loads(
            body.decode("utf-8", "replace"), parse_int=Decimal, parse_float=Decimal, parse_constant=_refuse
        )
    except RecursionError as error:
        raise TooDeep from error
    except (ValueError, InvalidOperation) as error:
        raise NotAnObject from error
    if not isinstance(record, dict):
        raise NotAnObject
    return record


def equals(value: object, wanted: str) -> bool:
    """Whether a field holds *wanted*: the same text, or the same number."""
    if isinstance(value, str):
        return value == wanted
    if isinstance(value, Decimal):
        try:
            return value == Decimal(wanted)  # exact; never true for NaN
        except InvalidOperation:
            return False
    return False


def encode(value: object) -> str:
    """Write JSON as Go does: keys sorted, without blanks, characters of HTML escaped."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{encode(key)}:{encode(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(encode, value)) + "]"
    if isinstance(value, Decimal):
        return number_text(value)
    if isinstance(value, str):
        text = json.dumps(_LONE_SURROGATE.sub("\ufffd", value), ensure_ascii=False)
        return _ESCAPED_PATTERN.sub(lambda found: _ESCAPED[found[0]], text)
    return json.dumps(value)  # true, false, null


def number_text(number: Decimal) -> str:
    """Write a number exactly and without superfluous digits: 1.0 is 1, 2.50 is 2.5, 1e3 is 1000."""
    sign, digits, exponent = number.as_tuple()
    written = "".join(map(str, digits)).lstrip("0")
    significant = written.rstrip("0")
    if not significant or not isinstance(exponent, int):
        return "0"
    exponent += len(written) - len(significant)
    point = len(significant) + exponent  # the position of the decimal point, counted from the first digit
    if not _MIN_EXPONENT < point <= _MAX_EXPONENT:
        fraction = f".{significant[1:]}" if len(significant) > 1 else ""
        text = f"{significant[0]}{fraction}e{point - 1:+03d}".replace("e-0", "e-")
    elif exponent >= 0:
        text = significant + "0" * exponent
    elif point > 0:
        text = f"{significant[:point]}.{significant[point:]}"
    else:
        text = "0." + "0" * -point + significant
    return "-" + text if sign else text


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")
