"""The regular expression of ``-topic-pattern``, in the syntax of RE2, as the original reads it."""

from collections.abc import Callable

import re2


def occurs_in(pattern: str) -> Callable[[str], bool]:
    """Return what tells whether *pattern* matches anywhere in a topic; ValueError when it is none."""
    options = re2.Options()
    options.log_errors = False  # the sentence of the refusal says it
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(error.args[0].decode("utf-8", "replace")) from error
    return lambda topic: compiled.search(topic) is not None
