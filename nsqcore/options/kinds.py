"""The kinds of values an option can have: how flags and TOML are read into it and a default is printed."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from nsqclient.wire.durations import MILLISECOND, meant_duration, parse_duration
from nsqcore.durations import format_duration
from nsqcore.process.logs import parse_log_level

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})

_INT = re.compile(
    r"[+-]?(?:0[xX](?:_?[0-9a-fA-F])+|0[bB](?:_?[01])+|0[oO]?(?:_?[0-7])+|[1-9](?:_?[0-9])*|0)", re.ASCII
)
_DECIMAL = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**63 - 1


class RefusedError(ValueError):
    """A value that ends the start with the text as one plain line instead of the usage text."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How values of one kind are read and shown. Readers raise ValueError with the reason."""

    word: str
    """The word that the usage text puts after the flag's name."""
    from_flag: Callable[[str], Any]
    from_toml: Callable[[Any], Any]
    boolean: bool = False
    """A bare ``-flag`` means true, and a value needs ``=``."""
    listed: bool = False
    """Each occurrence of the flag adds to a tuple."""
    descending: bool = False
    """Values from flags are sorted, the largest first; the order in a file is kept."""
    fatal_in_file: bool = False
    """An invalid TOML value is a FATAL ``failed parsing KEY VALUE``, checked before all others."""
    show: Callable[[Any], object] = lambda value: value
    """The value that ``/config/:opt`` answers: text is sent raw, anything else as JSON."""
    default_text: Callable[[Any], str] = lambda value: go_text(value)  # noqa: PLW0108 - defined below


def go_text(value: object) -> str:
    """Write a TOML or option value as NSQ's error sentences do."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + " ".join(go_text(item) for item in value) + "]"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_text(value[key])}" for key in sorted(value)) + "]"
    return str(value)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def parse_bool(word: str) -> bool:
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError("parse error")


def parse_int(word: str) -> int:
    """Read an integer as flags allow it: decimal, 0x, 0o, 0b, with underscores between digits."""
    if not _INT.fullmatch(word):
        raise ValueError("parse error")
    sign, digits = (word[0], word[1:]) if word[0] in "+-" else ("", word)
    if len(digits) > 1 and digits[0] == "0" and digits[1] in "_01234567":
        digits = "0o" + digits[1:]  # a leading zero also means octal
    return _in_range(int(sign + digits, 0))


def parse_float(word: str) -> float:
    if not _FLOAT.fullmatch(word):
        raise ValueError("parse error")
    return float(word)


def _in_range(number: int) -> int:
    if not _MIN_INT <= number <= _MAX_INT:
        raise ValueError("value out of range")
    return number


def _wrong_type(wanted: str) -> ValueError:
    return ValueError(f"it must be {wanted}")


def _duration_from_flag(word: str) -> int:
    try:
        return parse_duration(word)
    except ValueError:
        raise ValueError(f"parse error{meant_duration(word)}") from None


def _str_from_toml(value: object) -> str:
    if not isinstance(value, str):
        raise _wrong_type("text in quotes")
    return value


def _bool_from_toml(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return parse_bool(value)
        except ValueError:
            raise _wrong_type("true or false") from None
    # 1 is true and 0 is false. The original has them the wrong way round.
    if isinstance(value, int):
        return value != 0
    raise _wrong_type("true or false")


def _int_from_toml(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return _in_range(value)
    if isinstance(value, str):
        if not _DECIMAL.fullmatch(value):
            raise _wrong_type("a whole number")
        return _in_range(int(value))
    raise _wrong_type("a whole number")


def dialed(address: str) -> str:
    """``host:port`` to connect to as the original understands it: without a host this machine, ports by name.

    Anything else stays, and the check of the option says what is wrong with it.
    """
    host, colon, port = address.rpartition(":")
    if not colon or "/" in address:
        return address
    if port and not port.isdecimal():
        import socket  # not needed for other options, and a tenth of the start of a tool

        try:
            port = str(socket.getservbyname(port, "tcp"))
        except OSError:
            return address
    return f"{host or 'localhost'}:{port}"


def _float_from_toml(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return parse_float(value)
        except ValueError:
            raise _wrong_type("a number") from None
    raise _wrong_type("a number")


def _duration_from_toml(value: object) -> int:
    # A bare number is in milliseconds: these options were once integers, and old files still have 60000.
    if isinstance(value, int) and not isinstance(value, bool):
        return _in_range(value * MILLISECOND)
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError as error:
            raise ValueError(f"{error}{meant_duration(value)}") from None
    raise _wrong_type('a duration such as "1m30s", or whole milliseconds')


def _strings_from_toml(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(value.split(",")) if value else ()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise _wrong_type("a list of texts")


def _floats_from_toml(value: object) -> tuple[float, ...]:
    if isinstance(value, str):
        return tuple(_float_from_toml(item.strip()) for item in value.split(",")) if value else ()
    if isinstance(value, list):
        return tuple(_float_from_toml(item) for item in value)
    raise _wrong_type("a list of numbers")


def _floats_from_flag(word: str) -> tuple[float, ...]:
    try:
        return tuple(parse_float(item) for item in word.split(","))
    except ValueError:
        raise RefusedError(f"Could not parse: {word}") from None


def _text_default(value: str) -> str:
    return quoted(value)


STR: Final = Kind("string", str, _str_from_toml, default_text=_text_default)
BOOL: Final = Kind("", parse_bool, _bool_from_toml, boolean=True)
INT: Final = Kind("int", parse_int, _int_from_toml)
FLOAT: Final = Kind("float", parse_float, _float_from_toml, default_text=lambda value: f"{value:g}")
DURATION: Final = Kind("duration", _duration_from_flag, _duration_from_toml, default_text=format_duration)
STR_LIST: Final = Kind("value", lambda word: (word,), _strings_from_toml, listed=True, show=list)
DIAL: Final = Kind("string", dialed, lambda value: dialed(_str_from_toml(value)), default_text=_text_default)
DIAL_LIST: Final = Kind(
    "value",
    lambda word: (dialed(word),),
    lambda value: tuple(map(dialed, _strings_from_toml(value))),
    listed=True,
    show=list,
)
FLOAT_LIST: Final = Kind(
    "value", _floats_from_flag, _floats_from_toml, listed=True, descending=True, show=list
)
LISTEN_LIST: Final = Kind(
    "value",
    lambda word: (word,) if word else (),
    lambda value: (value,) if isinstance(value, str) and value else _strings_from_toml(value),
    listed=True,
    # As in NSQ, where it is one address.
    show=lambda value: ",".join(value) if len(value) < 2 else list(value),
    default_text=lambda value: quoted(",".join(value)),
)
LOG_LEVEL: Final = Kind(
    "value",
    parse_log_level,
    lambda value: parse_log_level(_str_from_toml(value)),
    fatal_in_file=True,
    show=int,
    default_text=lambda value: value.name.lower(),
)
