"""Bodies that do not fit the JSON schema go into a table of their own, with their place of origin.

python dead_letters.py LOOKUPD_HTTP_ADDRESS TOPIC FOLDER
"""

import sys

from pyspark.sql import DataFrame, SparkSession

from pyspark_nsq import register

lookupd, topic, folder = sys.argv[1:]
spark = SparkSession.builder.appName("dead letters").getOrCreate()
register(spark)


def store(batch: DataFrame, number: int) -> None:
    """Store good and bad rows in folders named by the batch, so a repeated batch replaces its own."""
    batch.persist()
    good = batch.filter("_corrupt_record IS NULL").drop("_corrupt_record")
    bad = batch.filter("_corrupt_record IS NOT NULL").select(
        "timestamp", "nsqd", "sequence", "_corrupt_record"
    )
    good.write.mode("overwrite").parquet(f"{folder}/orders/batch={number}")
    bad.write.mode("overwrite").parquet(f"{folder}/dead_letters/batch={number}")
    batch.unpersist()


messages = (
    spark.readStream.format("nsq")
    .schema(
        "timestamp timestamp, nsqd string, sequence long, customer long, price double, _corrupt_record string"
    )
    .options(lookupdHttpAddresses=lookupd, topic=topic, channel="letters", bodyFormat="json")
    .option("startingOffsets", "earliest")
    .load()
)
query = (
    messages.writeStream.foreachBatch(store)
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
