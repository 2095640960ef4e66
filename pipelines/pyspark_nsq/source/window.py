"""The part of a log that the filters of a batch read leave: spans of sequences and of time. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from pyspark_nsq.source.arrays import flags
from pyspark_nsq.source.columns import Columns, Origin
from pyspark_nsq.source.frames import Messages

_NEVER_NULL: Final = frozenset(("timestamp", "sequence"))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Interval:
    """``first <= value <= last``; None means no limit."""

    first: int | None = None
    last: int | None = None

    def narrow(self, one: Filter, value: int) -> None:
        least = most = None
        match one:
            case EqualTo():
                least = most = value
            case GreaterThan():
                least = value + 1
            case GreaterThanOrEqual():
                least = value
            case LessThan():
                most = value - 1
            case LessThanOrEqual():
                most = value
        if least is not None:
            self.first = least if self.first is None else max(self.first, least)
        if most is not None:
            self.last = most if self.last is None else min(self.last, most)


@dataclass(slots=True)
class FilterWindow:
    """The common span of all filters."""

    sequences: Interval
    times_us: Interval

    @classmethod
    def open(cls) -> "FilterWindow":
        return cls(Interval(), Interval())

    def take(self, one: Filter) -> bool:
        """Narrow the window by a filter; return False if Spark has to apply it."""
        if not isinstance(
            one, IsNotNull | EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
        ):
            return False
        name = ".".join(one.attribute)
        if name not in _NEVER_NULL:
            return False
        if isinstance(one, IsNotNull):
            return True
        value = one.value
        if name == "sequence" and type(value) is int:
            self.sequences.narrow(one, value)
            return True
        if name == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
            self.times_us.narrow(one, _microseconds(value))
            return True
        return False


class Within:
    """The columns of only those messages that were published in a span of time."""

    def __init__(self, columns: Columns, times_us: Interval) -> None:
        self._columns = columns
        self._times_us = times_us
        self.has_headers = columns.has_headers

    def batches(self, messages: Messages, origin: Origin) -> Iterator[pa.RecordBatch]:
        times, span = messages.timestamps_us, self._times_us
        kept: Any = np.ones(len(times), bool)
        if span.first is not None:
            kept &= times >= span.first
        if span.last is not None:
            kept &= times <= span.last
        for batch in self._columns.batches(messages, origin):
            yield batch if kept.all() else batch.filter(flags(kept))


def _microseconds(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
