"""Regular expressions of auth servers and policies: those of RE2, as in the original, in linear time.

A search takes time in proportion to the text, whatever the pattern: with ``re`` one careless pattern could
stop the event loop for minutes.
"""

import re
from typing import Final

from nsqcore.patterns import PatternError, search_for

# Unicode classes are slow to compile, about 0.15 ms each; this keeps the worst pattern below a second, and
# still lists a thousand names.
MAX_LENGTH: Final = 16_384

# In RE2 \C stands for one byte; the original refuses it. Escapes are matched from the left, so that a
# backslash that is itself escaped or quoted is not taken for the beginning of one.
_ESCAPES: Final = re.compile(r"\\Q.*?(?:\\E|$)|\\.", re.DOTALL)


class BadPattern(ValueError):
    """The original does not understand the pattern; the text says why and quotes nothing of it."""


class Pattern:
    """A compiled pattern."""

    __slots__ = ("occurs_in",)

    def __init__(self, text: str) -> None:
        """Compile *text*. Raises BadPattern."""
        if len(text) > MAX_LENGTH:
            raise BadPattern(f"longer than {MAX_LENGTH} characters")
        if r"\C" in _ESCAPES.findall(text):
            raise BadPattern(r"invalid escape sequence: \C")
        try:
            # Whether the pattern matches anywhere in a text.
            self.occurs_in: Final = search_for(text)
        except PatternError as error:
            # "missing ): (a" names the fault and then the pattern; only the fault is reported.
            raise BadPattern(error.reason) from error
