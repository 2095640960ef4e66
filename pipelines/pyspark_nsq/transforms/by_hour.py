"""What the folders of an archive are named after, as columns of their own."""

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

COLUMNS = ("date", "hour")


def by_hour(messages: DataFrame) -> DataFrame:
    """Add ``date`` (2026-11-20) and ``hour`` (00 to 23) of the timestamp, in the session's time zone."""
    return messages.withColumns(
        # date_format() would make the whole archive job a seventh slower.
        {"date": f.to_date("timestamp"), "hour": f.lpad(f.hour("timestamp").cast("string"), 2, "0")},
    )


def by_expressions(messages: DataFrame, named: Iterable[str]) -> tuple[DataFrame, tuple[str, ...]]:
    """Add a column for each ``name=expression``, and say what they are called."""
    columns = {name.strip(): f.expr(text) for name, _, text in (one.partition("=") for one in named)}
    return messages.withColumns(columns), tuple(columns)
