"""The folders of an archive: the same day and hour as Spark's own functions have, whatever the time zone."""

import datetime as dt

import pytest
from pyspark.sql import functions as f

from pyspark_nsq.transforms.by_hour import by_hour

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

ZONE = "spark.sql.session.timeZone"
HOUR_US = 3_600_000_000
MOMENTS = [
    0,
    HOUR_US - 1,
    1_767_225_599_999_999,  # the last microsecond of 2025
    1_767_225_600_000_000,
    1_709_164_800_000_000,  # 29 February
    -1,
    -24 * HOUR_US,
    -24 * HOUR_US - 1,
    *(1_774_742_400_000_000 + n * HOUR_US for n in range(48)),  # summer time begins in Europe
]


@pytest.fixture(params=["UTC", "Europe/Berlin", "Asia/Kolkata"])
def zone(request, spark):
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, request.param)
    yield request.param
    spark.conf.set(ZONE, before)


def test_a_message_is_in_the_folder_of_its_hour(spark, zone):
    messages = spark.createDataFrame([(moment,) for moment in MOMENTS], "us long").select(
        "us", f.timestamp_micros("us").alias("timestamp")
    )
    placed = by_hour(messages).withColumn("spark", f.date_format("timestamp", "yyyy-MM-dd HH"))
    found = {row.us: f"{row.date} {row.hour}" for row in placed.collect()}
    assert found == {row.us: row.spark for row in placed.collect()}
    assert placed.schema["date"].dataType.simpleString() == "date"
    assert placed.schema["hour"].dataType.simpleString() == "string"


def test_a_message_without_a_time_is_in_no_folder(spark):
    messages = spark.createDataFrame([(None,)], "timestamp timestamp")
    assert by_hour(messages).collect()[0].asDict() == {"timestamp": None, "date": None, "hour": None}


def test_days_are_those_of_utc(spark):
    when = dt.datetime(2026, 11, 20, 23, 59, 59, tzinfo=dt.UTC)
    row = by_hour(spark.createDataFrame([(when,)], "timestamp timestamp")).collect()[0]
    assert (row.date, row.hour) == (dt.date(2026, 11, 20), "23")
