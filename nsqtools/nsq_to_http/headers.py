"""Decides which headers an HTTP request can have. Pure."""

import re
from collections.abc import Mapping
from typing import Final

_WORD: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# These say where the request ends, and follow from its body.
_OF_THE_BODY: Final = frozenset(("content-length", "transfer-encoding"))


def fits(name: str, value: str) -> bool:
    """Whether a request can hold this header."""
    return _WORD.fullmatch(name) is not None and not _CONTROL.search(value)


def header_problem(headers: Mapping[str, str]) -> str | None:
    """Why one of the headers cannot be in every request, or None."""
    for name, value in headers.items():
        if not fits(name, value):
            return f"--header {name!r} cannot be sent: a name is one word, a value one line"
        if name.lower() in _OF_THE_BODY:
            return f"--header {name} cannot be given: it follows from the message"
    return None
