"""The result of the filters of a batch read: logs by name, and intervals of sequences and of time. Pure.

Sequences are in order in a log, so an interval of them limits what is read. Timestamps are not if a clock was
set back, so each row is compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from pyspark_nsq.source.arrays import flags
from pyspark_nsq.source.columns import Columns, Origin
from pyspark_nsq.source.frames import Messages

# Columns that have one value in a log.
_LOG_COLUMNS: Final = frozenset(("topic", "nsqd"))
_NEVER_NULL: Final = frozenset(("timestamp", "sequence")) | _LOG_COLUMNS
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Interval:
    """``first <= value <= last``; None means no limit."""

    first: int | None = None
    last: int | None = None

    def narrow(self, one: Filter, value: int) -> None:
        match one:
            case EqualTo():
                self.limit(value, value)
            case GreaterThan():
                self.limit(value + 1, None)
            case GreaterThanOrEqual():
                self.limit(value, None)
            case LessThan():
                self.limit(None, value - 1)
            case LessThanOrEqual():
                self.limit(None, value)

    def limit(self, first: int | None, last: int | None) -> None:
        """Return the intersection with another interval."""
        if first is not None:
            self.first = first if self.first is None else max(self.first, first)
        if last is not None:
            self.last = last if self.last is None else min(self.last, last)

    @property
    def is_limited(self) -> bool:
        return self.first is not None or self.last is not None


@dataclass(slots=True)
class FilterWindow:
    """The intersection of all filters."""

    sequences: Interval = field(default_factory=Interval)
    times_us: Interval = field(default_factory=Interval)
    names: dict[str, set[Any]] = field(default_factory=dict)
    """The values that are left of a column with one value in each log."""

    def narrow(self, one: Filter) -> bool:
        """Narrow the window by a filter; return False if Spark has to apply it as well."""
        if not isinstance(
            one, IsNotNull | In | EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
        ):
            return False
        name = ".".join(one.attribute)
        if name not in _NEVER_NULL:
            return False
        if isinstance(one, IsNotNull):
            return True
        if name in _LOG_COLUMNS and isinstance(one, EqualTo | In):
            values = set(one.value) if isinstance(one, In) else {one.value}
            self.names[name] = self.names.get(name, values) & values
            return True
        if isinstance(one, In):
            numbers = [_number(name, value) for value in one.value]
            known = [number for number in numbers if number is not None]
            if len(known) == len(numbers) > 0:
                self._interval(name).limit(min(known), max(known))
            return False  # the values between are left to Spark
        number = _number(name, one.value)
        if number is None:
            return False
        self._interval(name).narrow(one, number)
        return True

    def has_log(self, topic: str, nsqd: str) -> bool:
        """Whether rows of this log are wanted."""
        return all(
            value in self.names.get(column, (value,)) for column, value in (("topic", topic), ("nsqd", nsqd))
        )

    def _interval(self, column: str) -> Interval:
        return self.sequences if column == "sequence" else self.times_us


class TimeInterval:
    """The columns of only those messages that were published in an interval of time."""

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
        if not kept.any():
            return
        for batch in self._columns.batches(messages, origin):
            yield batch if kept.all() else batch.filter(flags(kept))


def _number(column: str, value: Any) -> int | None:
    """Return a sequence, or a time in microseconds; None if the value is neither."""
    if column == "sequence" and type(value) is int:
        return value
    if column == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
        return _microseconds(value)
    return None


def _microseconds(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
