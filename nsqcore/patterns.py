"""Regular expressions as the original reads them: RE2's, in time that grows with the text alone.

The package google-re2 (the extra ``re2``) knows them all. It has no wheels for musl, so Alpine does without,
and so does who installs no extra: then those are understood that are simple enough for ``re`` to mean the
same by them, and quickly. Others are refused with the name of the extra.
"""

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from nsqcore.plain_patterns import translated

try:
    import re2
except ImportError:
    re2 = None  # it has no types, so this needs none either

Search: TypeAlias = Callable[[str], bool]

NEEDS_RE2: Final = "not understood without the package google-re2: pip install nsq-cluster[re2]"


class PatternError(ValueError):
    """It is none, or one that needs google-re2; the text says what is wrong and, after that, where."""

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(f"{what}: {where}" if where else what)
        self.what = what


def search_for(pattern: str) -> Search:
    """Return what tells whether *pattern* matches anywhere in a text. Raises PatternError."""
    return _in_plain(pattern) if re2 is None else _of_re2(pattern)


def _of_re2(pattern: str) -> Search:
    options = re2.Options()
    # It would be written to stderr, past our log.
    options.log_errors = False
    # Where a group matched is of no interest here, and costs time.
    options.never_capture = True
    try:
        found = re2.compile(pattern, options).search
    except re2.error as error:
        # "missing ): (a" - what is wrong, and where.
        what, _, where = error.args[0].decode("utf-8", "replace").partition(": ")
        raise PatternError(what, where) from error
    except UnicodeEncodeError as error:
        # JSON can spell half of a surrogate pair.
        raise PatternError("invalid UTF-8") from error
    return lambda text: found(text) is not None


def _in_plain(pattern: str) -> Search:
    plain = translated(pattern)
    if plain is None:
        raise PatternError(NEEDS_RE2)
    found = re.compile(plain, re.ASCII).search
    return lambda text: found(text) is not None
