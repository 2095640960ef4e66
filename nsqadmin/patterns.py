"""Addresses with names in braces, and how values replace the names; PURE."""

from collections.abc import Mapping
from urllib.parse import quote


def placeholders(pattern: str) -> list[str]:
    """Return the names in braces. Raises ValueError with a sentence if a brace is left open."""
    names = []
    for piece in pattern.split("{")[1:]:
        name, closed, _ = piece.partition("}")
        if not closed or not name:
            raise ValueError("a brace is left open")
        names.append(name)
    return names


def fill(pattern: str, values: Mapping[str, str]) -> str:
    """Replace the names in braces by their *values*; return an empty string if a value is missing."""
    for name in placeholders(pattern):
        if not values.get(name):
            return ""
        pattern = pattern.replace("{" + name + "}", quote(values[name], safe=""))
    return pattern
