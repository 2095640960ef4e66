"""The numbers that a node may report. Pure."""

from typing import Annotated, Final, TypeAlias

import msgspec

_MOST: Final = 2**63 - 1
_LEAST: Final = -(2**63)

# What the original's nsqadmin can read. A depth may be negative: Go reports what a damaged queue says.
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=_LEAST, le=_MOST)]
# Seconds, or a time since 1970, of which a date can be made: of the years 1 to 9999.
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=-62_135_596_800, lt=253_402_300_800)]


def clamped(number: int) -> int:
    """Return the number of 64 bits that is nearest to *number*: a sum of such numbers may be none."""
    if _LEAST <= number <= _MOST:
        return number
    return _MOST if number > 0 else _LEAST


def int64(value: object) -> int:
    """Return *value* if it is a whole number of 64 bits. Raises ValueError."""
    return msgspec.convert(value, Int64)
