"""What goes wrong in the source, as one sentence for the person who runs the query."""

import re
from typing import Final


class SourceError(Exception):
    """The query cannot go on; the text is one sentence that names the reason."""


class OptionError(SourceError, ValueError):
    """An option of the data source is missing or cannot be used."""


class DataLossError(SourceError):
    """Messages that the query has not read yet are not there any more."""


# Spark passes errors of a Python data source on as the text of a traceback.
_IN_TRACEBACK: Final = re.compile(r"pyspark_nsq\.source\.errors\.(?:Source|Option|DataLoss)Error: (.+)")


def sentence_in(text: str) -> str | None:
    """The sentence of the error that the traceback in *text* ends with; None when it is not one of ours."""
    found = _IN_TRACEBACK.findall(text)
    return found[-1].strip() if found else None
