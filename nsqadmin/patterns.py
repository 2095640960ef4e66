"""Addresses with names in braces, and their values put in; PURE."""

from collections.abc import Mapping
from urllib.parse import quote


def placeholders(pattern: str) -> list[str]:
    """Return the names in braces; ValueError with a sentence when one is left open."""
    names = []
    for piece in pattern.split("{")[1:]:
        name, closed, _ = piece.partition("}")
        if not closed or not name:
            raise ValueError("a brace is left open")
        names.append(name)
    return names


def fill(pattern: str, values: Mapping[str, str]) -> str:
    """Put *values* where their names stand in braces; empty when one of them is not known."""
    for name in placeholders(pattern):
        if not values.get(name):
            return ""
        pattern = pattern.replace("{" + name + "}", quote(values[name], safe=""))
    return pattern
