"""The messages of one day as a table, read once: by default those of yesterday in UTC.

python yesterday.py LOOKUPD_HTTP_ADDRESS TOPIC FOLDER [DAY]

The topic needs a policy with a ``retain_time`` of two days or more: nsqd removes finished messages.
"""

import sys
from datetime import UTC, date, datetime, timedelta

from pyspark.sql import SparkSession

from pyspark_nsq import register

lookupd, topic, folder, *given = sys.argv[1:]
day = date.fromisoformat(given[0]) if given else datetime.now(UTC).date() - timedelta(days=1)
spark = SparkSession.builder.appName("yesterday").getOrCreate()
register(spark)

messages = (
    spark.read.format("nsq")
    .options(lookupdHttpAddresses=lookupd, topic=topic)
    .options(startingTimestamp=f"{day}T00:00:00Z", endingTimestamp=f"{day + timedelta(days=1)}T00:00:00Z")
    .load()
)
messages.write.mode("overwrite").parquet(f"{folder}/{day}")
print(f"{spark.read.parquet(f'{folder}/{day}').count()} messages of {day} in {folder}/{day}")
