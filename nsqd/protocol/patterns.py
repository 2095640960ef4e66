"""Regular expressions of auth servers and policies: RE2's, which is what the original's are, in RE2's time.

A search takes time in proportion to the text, whatever the pattern: with ``re`` one careless pattern could
stop the event loop for minutes.
"""

import re
from typing import Final

from nsqcore.patterns import PatternError, search_for

# Unicode classes are slow to compile, about 0.15 ms each; this keeps the worst pattern below a second, and
# still lists a thousand names.
MAX_LENGTH: Final = 16_384

# RE2 has \C for one byte; the original refuses it. Taken from the left, so that a backslash that is escaped
# or quoted is not mistaken for the beginning of it.
_ESCAPES: Final = re.compile(r"\\Q.*?(?:\\E|$)|\\.", re.DOTALL)


class BadPattern(ValueError):
    """The pattern is not one the original understands; the text says why and quotes nothing of it."""


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
            # "missing ): (a": what is wrong is said, and where is not.
            raise BadPattern(error.what) from error
