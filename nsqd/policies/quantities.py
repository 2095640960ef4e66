"""Durations and sizes as people write them: ``7d``, ``1h30m``, ``10GiB``."""

import re
from typing import Any, Final

from nsqclient.wire.durations import MAX_DURATION
from nsqcore.durations import parse_long_duration

_SIZE: Final = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,6}))?\s*(?:([kmgt])(i)?)?b?", re.IGNORECASE)
_POWER: Final = {"k": 1, "m": 2, "g": 3, "t": 4}
_PERCENT: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%")
_LARGEST: Final = 1 << 60


def duration_ns(value: Any) -> int:
    """*value* as nanoseconds, more than 0. Raises ValueError with half a sentence."""
    if not isinstance(value, str):
        # The caller puts the name of the setting before it.
        raise ValueError(  # noqa: TRY004
            "is no duration: write one in quotes, such as '90s', '1h30m' or '7d'"
        )
    try:
        found = parse_long_duration(value.strip())
    except ValueError as error:
        raise ValueError(f"is no duration: {value!r}; write one such as '90s', '1h30m' or '7d'") from error
    if not 0 < found <= MAX_DURATION:
        raise ValueError(f"must be longer than none and at most 292 years, not {value!r}")
    return found


def size_bytes(value: Any) -> int:
    """*value* as bytes, more than 0. Raises ValueError with half a sentence."""
    if isinstance(value, int) and not isinstance(value, bool):
        found = value
    else:
        match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"is no size: {value!r}; write one such as 1000000, '500MB' or '10GiB'")
        unit = (1024 if match[4] else 1000) ** _POWER.get((match[3] or "").lower(), 0)
        part = match[2] or ""
        found = int(match[1]) * unit + int(part or "0") * unit // 10 ** len(part)
    if not 0 < found <= _LARGEST:
        raise ValueError(f"must be more than no bytes, and less than 2^60, not {value!r}")
    return found


def watermark(text: str) -> tuple[int, float]:
    """The space to leave free: bytes, or else a part of the whole. Raises ValueError with half a sentence."""
    if not text:
        return 0, 0.0
    match = _PERCENT.fullmatch(text.strip())
    if match is None:
        return size_bytes(text), 0.0
    part = float(match[1]) / 100
    if not 0 < part < 1:
        raise ValueError(f"must be more than 0% and less than 100%, not {text!r}")
    return 0, part


def count(value: Any) -> int:
    """A number of messages or deliveries: one or more. Raises ValueError with half a sentence."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < _LARGEST:
        raise ValueError(f"must be a whole number of at least 1, not {value!r}")
    return value
