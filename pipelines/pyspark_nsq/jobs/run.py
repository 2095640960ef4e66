"""Runs a query to its end, and prints a line about each batch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_nsq.jobs.signals import Stop
from pyspark_nsq.lag_metrics import lags_of

# Seconds between two checks of a running query.
_POLL_S: Final = 1


@dataclass(slots=True)
class QueryRun:
    """A query that was started, and how many messages it has stored."""

    query: StreamingQuery
    messages_in: Callable[[StreamingQueryProgress], int]
    """How many messages the batch of a progress report has; it is asked once for each batch."""
    messages: int = 0
    reported: int = -1
    """The last batch with a line."""

    def update(self) -> None:
        """Record the batches that ended since the last check, and print a line about each."""
        for progress in self.query.recentProgress:
            if progress.numInputRows and progress.batchId > self.reported:
                self.reported = progress.batchId
                messages = self.messages_in(progress)
                self.messages += messages
                lag = sum(lags_of(progress).values())
                print(batch_line(progress.batchId, messages, progress.batchDuration / 1000, lag))


def run_until_end(run: QueryRun, stop: Stop) -> int:
    """Wait until the query ends or a signal stops it; return the number of messages that it stored.

    Raises the error that ended the query.
    """
    while not run.query.awaitTermination(_POLL_S):
        run.update()
        if stop.asked:
            run.query.stop()
    run.update()
    return run.messages


def batch_line(batch: int, messages: int, seconds: float, lag: int) -> str:
    """Return the line about a batch."""
    rate = messages / seconds if seconds else 0
    line = f"batch {batch}: {messages} messages in {seconds:.1f} s, {rate:.0f} a second, lag {lag}"
    return f"{line}, {lag / rate:.0f} s left at this rate" if lag and rate else line
