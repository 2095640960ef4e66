"""Adds the columns after which the folders of an archive are named."""

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

COLUMNS = ("date", "hour")
_HOURS = tuple(f"{hour:02}" for hour in range(24))
# Time zones whose days have 86,400 seconds and begin with those of Unix.
_UTC = frozenset(("UTC", "Etc/UTC", "Z", "GMT", "UCT", "Zulu"))


def by_hour(messages: DataFrame) -> DataFrame:
    """Add ``date`` (2026-11-20) and ``hour`` (00 to 23) of the timestamp, in the session's time zone."""
    if is_in_utc(messages.sparkSession):
        return messages.withColumns(_by_numbers())
    return messages.withColumns(
        # date_format() would make the whole archive job a seventh slower.
        {"date": f.to_date("timestamp"), "hour": f.lpad(f.hour("timestamp").cast("string"), 2, "0")},
    )


def is_in_utc(spark: SparkSession) -> bool:
    """Whether the session's days and hours are plain divisions of the seconds since 1970."""
    return spark.conf.get("spark.sql.session.timeZone") in _UTC


def _by_numbers() -> dict[str, Column]:
    """Return the same columns in UTC, as plain divisions.

    to_date() and hour() make a calendar object for every row, even in UTC. Without them, and with prepared
    texts for the hours, Java has a tenth less to do in the whole job.
    """
    seconds = f.unix_seconds("timestamp")
    second_of_day = f.pmod(seconds, f.lit(86_400))
    days = (seconds - second_of_day) / 86_400
    hours = f.array(*map(f.lit, _HOURS))
    return {
        "date": f.date_from_unix_date(days.cast("int")),
        "hour": f.get(hours, (second_of_day / 3600).cast("int")),
    }


def by_expressions(messages: DataFrame, named: Iterable[str]) -> tuple[DataFrame, tuple[str, ...]]:
    """Add a column for each ``name=expression``; return the columns' names as well."""
    columns = {name.strip(): f.expr(text) for name, _, text in (one.partition("=") for one in named)}
    return messages.withColumns(columns), tuple(columns)
