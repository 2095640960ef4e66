"""Errors of source and sink: a class for programs, and one sentence for the person who runs the query."""

import re
from typing import ClassVar, Final


class SourceError(Exception):
    """The query cannot continue. The text is the error class in brackets, then a sentence with the reason."""

    error_class: ClassVar[str] = "NSQ_FAILED"

    def __str__(self) -> str:
        return f"[{self.error_class}] {self.sentence}"

    @property
    def sentence(self) -> str:
        return str(self.args[0])


class OptionError(SourceError, ValueError):
    """An option of the data source, or a column of a write, is missing or invalid."""

    error_class = "NSQ_INVALID_OPTION"


class UnreachableError(SourceError):
    """An nsqd or nsqlookupd does not answer; the same query may succeed later."""

    error_class = "NSQ_UNREACHABLE"


class CheckpointError(SourceError):
    """The checkpoint is of another query."""

    error_class = "NSQ_WRONG_CHECKPOINT"


class RowError(SourceError):
    """nsqd does not accept a row."""

    error_class = "NSQ_INVALID_ROW"


class DataLossError(SourceError):
    """Messages that the query has not read yet no longer exist."""

    error_class = "NSQ_DATA_LOSS"


# Spark passes on errors of a Python data source as the text of a traceback.
_IN_TRACEBACK: Final = re.compile(r"pyspark_nsq\.source\.errors\.\w+: (?:\[NSQ_\w+\] )?(.+)")


def sentence_in(text: str) -> str | None:
    """Return the sentence of the last error of ours in a traceback; None if there is none."""
    found = _IN_TRACEBACK.findall(text)
    return found[-1].strip() if found else None
