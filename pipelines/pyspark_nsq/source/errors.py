"""Errors of the source, each with one sentence for the person who runs the query."""

import re
from typing import Final


class SourceError(Exception):
    """The query cannot continue; the text is one sentence with the reason."""


class OptionError(SourceError, ValueError):
    """An option of the data source is missing or invalid."""


class DataLossError(SourceError):
    """Messages that the query has not read yet no longer exist."""


# Spark passes on errors of a Python data source as the text of a traceback.
_IN_TRACEBACK: Final = re.compile(r"pyspark_nsq\.source\.errors\.(?:Source|Option|DataLoss)Error: (.+)")


def sentence_in(text: str) -> str | None:
    """Return the sentence of the last error of ours in a traceback; None if there is none."""
    found = _IN_TRACEBACK.findall(text)
    return found[-1].strip() if found else None
