"""Makes Spark report errors by their sentence, without a traceback."""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Final, ParamSpec, TypeVar

from pyspark_nsq.source.errors import SourceError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# Spark's Python worker reads this variable when it reports an error, just before it ends.
_NO_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
# This module is loaded in the processes that Spark starts for a data source.
_WORKER: Final = "pyspark.worker_util"


def in_one_sentence(method: Callable[P, R]) -> Callable[P, R]:
    """Make Spark report an error of ours by its sentence."""

    @functools.wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except SourceError:
            _hide_traceback()
            raise

    return wrapped


def each_in_one_sentence(values: Iterator[T]) -> Iterator[T]:
    """Do the same for an error that occurs while *values* are made."""
    try:
        yield from values
    except SourceError:
        _hide_traceback()
        raise


def _hide_traceback() -> None:
    # In the user's own process the variable would remain, and all processes started from it would inherit it.
    if _WORKER in sys.modules:
        os.environ[_NO_TRACEBACK] = "1"
