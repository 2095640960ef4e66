"""Errors as Spark reports them: by their sentence, without the way through the code that led to it."""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Final, ParamSpec, TypeVar

from pyspark_nsq.source.errors import SourceError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# Read by Spark's Python worker when it reports an error, just before it ends.
_NO_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
# Loaded in the processes that Spark starts for a data source.
_WORKER: Final = "pyspark.worker_util"


def in_one_sentence(method: Callable[P, R]) -> Callable[P, R]:
    """Have Spark report an error of ours by its sentence."""

    @functools.wraps(method)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except SourceError:
            _hide_traceback()
            raise

    return told


def each_in_one_sentence(values: Iterator[T]) -> Iterator[T]:
    """The same for an error that comes while *values* are made."""
    try:
        yield from values
    except SourceError:
        _hide_traceback()
        raise


def _hide_traceback() -> None:
    # In the user's own process it would stay, and be passed on to every process that this one starts.
    if _WORKER in sys.modules:
        os.environ[_NO_TRACEBACK] = "1"
