"""The rule for topic and channel names."""

import re
from typing import Final

EPHEMERAL_SUFFIX: Final = "#ephemeral"
MAX_NAME_LENGTH: Final = 64

_NAME = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?")
_NAME_BYTES = re.compile(rb"[.a-zA-Z0-9_-]+(#ephemeral)?")


def is_valid_name(name: str) -> bool:
    """Whether *name* may be a topic or channel: 1 to 64 characters, including the suffix."""
    return len(name) <= MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


def is_valid_name_bytes(name: bytes) -> bool:
    """Like :func:`is_valid_name`, for a name in bytes as received."""
    return len(name) <= MAX_NAME_LENGTH and _NAME_BYTES.fullmatch(name) is not None


def is_ephemeral(name: str) -> bool:
    return name.endswith(EPHEMERAL_SUFFIX)
