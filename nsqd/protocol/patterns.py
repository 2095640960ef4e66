"""Regular expressions of auth servers: RE2's, which is what the original's are, in RE2's time.

A search takes time in proportion to the text, whatever the pattern: with ``re`` one careless pattern could
stop the event loop for minutes.
"""

import re
from typing import Final

import re2

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

    __slots__ = ("_regexp",)

    def __init__(self, text: str) -> None:
        """Compile *text*. Raises BadPattern."""
        if len(text) > MAX_LENGTH:
            raise BadPattern(f"longer than {MAX_LENGTH} characters")
        if r"\C" in _ESCAPES.findall(text):
            raise BadPattern(r"invalid escape sequence: \C")
        try:
            self._regexp = re2.compile(text, _options())
        except re2.error as error:
            # "missing ): (a" - what is wrong, and where.
            raise BadPattern(error.args[0].decode("utf-8", "replace").partition(": ")[0]) from error
        except UnicodeEncodeError as error:
            # JSON can spell half of a surrogate pair.
            raise BadPattern("invalid UTF-8") from error

    def occurs_in(self, text: str) -> bool:
        """Whether the pattern matches anywhere in *text*."""
        return self._regexp.search(text) is not None


def _options() -> re2.Options:
    options = re2.Options()
    # It would be written to stderr, past our log.
    options.log_errors = False
    # Where a group matched is of no interest here, and costs time.
    options.never_capture = True
    return options
