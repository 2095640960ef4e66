r"""Regular expressions of auth servers: written for RE2, run by ``re``.

What RE2 does not have (look-around, back references, possessive quantifiers) is refused, so that a pattern
means here what it means to the original or nothing at all. A few things RE2 has and ``re`` has not are
refused, too: ``\p{..}``, ``\Q..\E``, ``\C``, and flags in the middle of a pattern.
"""

import re
from typing import Final

# The auth server is trusted, but a pattern runs on the event loop: names have at most 64 characters, and
# nobody needs more than this to describe some of them.
MAX_LENGTH: Final = 1_024

# Taken one by one from the left, so that nothing inside an escape or a class is mistaken for syntax.
_TOKEN: Final = re.compile(
    r"""
    (?P<escape>\\.)
  | (?P<set>\[\^?\]?(?:\\.|\[:\^?[a-z]+:\]|[^\]\\])*\])
  | (?P<group>\(\?(?:P?<[A-Za-z_]\w*>|[imsU]*(?:-[imsU]+)?[:)]|.{0,2}))
  | (?P<repeat>(?:[*+?]|\{\d+(?:,\d*)?\})[*+?]*)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_IN_SET: Final = re.compile(r"\\.|\[:\^?[a-z]+:\]|.", re.DOTALL)
_REPEAT: Final = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\??")
_LETTER_ESCAPES: Final = frozenset("AbBdDsSwWafnrtv")
_POSIX: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}


class BadPattern(ValueError):
    """The pattern is not of RE2, or uses what is not supported here."""


def translate(pattern: str) -> str:
    """The pattern in the syntax of ``re``. Raises BadPattern."""
    if len(pattern) > MAX_LENGTH:
        raise BadPattern(f"longer than {MAX_LENGTH} characters")
    return "".join(_translated(match) for match in _TOKEN.finditer(pattern))


def _translated(match: re.Match[str]) -> str:
    piece = match.group()
    kind = match.lastgroup
    if kind == "escape":
        return r"\Z" if piece == r"\z" else _escape(piece)
    if kind == "set":
        return _set(piece)
    if kind == "group":
        return _group(piece, match.start())
    if kind == "repeat" and not _REPEAT.fullmatch(piece):
        raise BadPattern(f"invalid nested repetition operator: {piece}")
    # A brace that repeats nothing stands for itself; to ``re`` {,3} would be a repetition.
    return r"\{" if piece == "{" else piece


def _escape(piece: str) -> str:
    char = piece[1]
    if char.isalnum() and char not in _LETTER_ESCAPES and char != "x":
        raise BadPattern(f"invalid escape sequence: {piece}")
    return r"\x07" if char == "a" else piece


def _group(piece: str, start: int) -> str:
    if piece.startswith(("(?P<", "(?<")) and piece.endswith(">"):
        return piece if piece.startswith("(?P") else f"(?P{piece[2:]}"
    if not piece.endswith((":", ")")) or "U" in piece or not re.fullmatch(r"\(\?[ims-]*[:)]", piece):
        raise BadPattern(f"invalid or unsupported Perl syntax: {piece}")
    if piece.endswith(")") and (start or "-" in piece):
        raise BadPattern(f"flags are understood at the beginning of a pattern only: {piece}")
    return piece


def _set(piece: str) -> str:
    negated = piece.startswith("[^")
    inside = piece[2 if negated else 1 : -1]
    return ("[^" if negated else "[") + "".join(_member(part) for part in _IN_SET.findall(inside)) + "]"


def _member(part: str) -> str:
    if part.startswith("[:"):
        members = _POSIX.get(part[2:-2])
        if members is None:
            raise BadPattern(f"invalid character class range: {part}")
        return members
    if part.startswith("\\"):
        return _escape(part)
    # What ``re`` reserves for set operations is an ordinary character to RE2.
    return "\\" + part if part in "[]&~|" else part
