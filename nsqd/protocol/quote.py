"""Quoting as the original does in its error sentences (Go's ``%q``)."""

from typing import Final

_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}
_LAST_OF_BMP: Final = 0xFFFF
_FIRST_SURROGATE_ESCAPE: Final = 0xDC80
_LAST_SURROGATE_ESCAPE: Final = 0xDCFF


def quote(raw: bytes) -> str:
    """Return *raw* in double quotes, with unprintable characters escaped."""
    return '"' + "".join(map(_quoted, raw.decode("utf-8", "surrogateescape"))) + '"'


def _quoted(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if _FIRST_SURROGATE_ESCAPE <= code <= _LAST_SURROGATE_ESCAPE:  # a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:  # ASCII
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _LAST_OF_BMP else f"\\U{code:08x}"
