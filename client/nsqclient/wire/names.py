"""The rule for topic and channel names."""

import re
from typing import Final

EPHEMERAL_SUFFIX: Final = "#ephemeral"
MAX_NAME_LENGTH: Final = 64

_DEAD_LETTER_SUFFIX: Final = ".dead"
_DIGITS: Final = 8

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


def dead_letter_topic(topic: str, channel: str) -> str:
    """The default topic for the dead letters of a channel.

    It is durable even if topic and channel are ephemeral.
    """
    both = f"{topic.removesuffix(EPHEMERAL_SUFFIX)}.{channel.removesuffix(EPHEMERAL_SUFFIX)}"
    if len(both) + len(_DEAD_LETTER_SUFFIX) <= MAX_NAME_LENGTH:
        return both + _DEAD_LETTER_SUFFIX
    # Imported here because few channels have names that long.
    import hashlib

    # If the name were only cut, two channels could have the same one.
    digest = hashlib.sha256(f"{topic}/{channel}".encode()).hexdigest()[:_DIGITS]
    return f"{both[: MAX_NAME_LENGTH - len(_DEAD_LETTER_SUFFIX) - _DIGITS - 1]}-{digest}{_DEAD_LETTER_SUFFIX}"
