"""Regular expressions as the original reads them: those of RE2, which match in time linear in the text.

The package google-re2 (the extra ``re2``) supports all of them. It has no wheels for musl, so it is missing
on Alpine and wherever the extra was not installed. Then only patterns are accepted that are so simple that
``re`` matches the same texts, and quickly. Others are refused with the name of the extra.
"""

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from nsqcore.plain_patterns import translated

try:
    import re2
except ImportError:
    re2 = None  # the package has no types, so this needs none

Search: TypeAlias = Callable[[str], bool]

NEEDS_RE2: Final = "not understood without the package google-re2: pip install nsq-cluster[re2]"


class PatternError(ValueError):
    """The pattern is invalid, or needs google-re2; the text says what is wrong and, after that, where."""

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(f"{what}: {where}" if where else what)
        self.reason = what


def search_for(pattern: str) -> Search:
    """Return a function that tells whether *pattern* matches anywhere in a text. Raises PatternError."""
    return _in_plain(pattern) if re2 is None else _of_re2(pattern)


def _of_re2(pattern: str) -> Search:
    options = re2.Options()
    # The library would write errors to stderr instead of the log.
    options.log_errors = False
    # The positions of groups are not needed, and cost time.
    options.never_capture = True
    try:
        found = re2.compile(pattern, options).search
    except re2.error as error:
        # "missing ): (a" - what is wrong, and where.
        what, _, where = error.args[0].decode("utf-8", "replace").partition(": ")
        raise PatternError(what, where) from error
    except UnicodeEncodeError as error:
        # JSON can contain half of a surrogate pair.
        raise PatternError("invalid UTF-8") from error
    return lambda text: found(text) is not None


def _in_plain(pattern: str) -> Search:
    plain = translated(pattern)
    if plain is None:
        raise PatternError(NEEDS_RE2)
    found = re.compile(plain, re.ASCII).search
    return lambda text: found(text) is not None
