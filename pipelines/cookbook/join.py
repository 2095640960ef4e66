"""Orders with their payments: two topics joined, each row when both halves have come.

python join.py LOOKUPD_HTTP_ADDRESS ORDERS_TOPIC PAYMENTS_TOPIC FOLDER
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_nsq import register

lookupd, orders_topic, payments_topic, folder = sys.argv[1:]
# Each partition keeps its own state; Spark's default of 200 is for a large cluster.
builder = SparkSession.builder.appName("join").config("spark.sql.shuffle.partitions", "4")
spark = builder.getOrCreate()
register(spark)


def read(topic: str, schema: str) -> DataFrame:
    """Read a topic of JSON objects, with the time when each was published."""
    return (
        spark.readStream.format("nsq")
        .schema(f"timestamp timestamp, {schema}")
        .options(lookupdHttpAddresses=lookupd, topic=topic, channel="join", bodyFormat="json")
        .option("startingOffsets", "earliest")
        .load()
        .withWatermark("timestamp", "1 hour")
    )


orders = read(orders_topic, "customer long, order long").withColumnRenamed("timestamp", "ordered")
payments = read(payments_topic, "order long, paid double").withColumnRenamed("timestamp", "came")
paid = orders.alias("o").join(
    payments.alias("p"),
    # Without a span of time Spark would have to keep every order forever.
    f.expr("o.order = p.order AND came BETWEEN ordered - INTERVAL 1 HOUR AND ordered + INTERVAL 1 HOUR"),
)
query = (
    paid.select("o.order", "customer", "paid")
    .writeStream.format("parquet")
    .option("path", f"{folder}/paid")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.read.parquet(f"{folder}/paid").show()
