"""Every message once in a Delta table: a batch that comes again is recognized by its transaction.

python into_delta.py LOOKUPD_HTTP_ADDRESS TOPIC FOLDER

It needs the Python package deltalake and no jar.
"""

import sys

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from pyspark_nsq import register

lookupd, topic, folder = sys.argv[1:]
spark = SparkSession.builder.appName("into Delta").getOrCreate()
register(spark)
table = f"{folder}/delta"


def has(query: str, number: int) -> bool:
    """Tell whether the table has this batch of the query."""
    last = DeltaTable(table).transaction_version(query) if DeltaTable.is_deltatable(table) else None
    return last is not None and last >= number


def store(batch: DataFrame, number: int) -> None:
    """Add a batch in one commit, unless the table has it."""
    # The id is the same for all runs with this checkpoint.
    query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
    if has(query, number):
        return
    noted = CommitProperties(app_transactions=[Transaction(query, number)])
    write_deltalake(table, batch.toArrow(), mode="append", commit_properties=noted)


orders = (
    spark.readStream.format("nsq")
    .schema("nsqd string, sequence long, timestamp timestamp, customer long, price double")
    .options(lookupdHttpAddresses=lookupd, topic=topic, channel="delta", bodyFormat="json")
    .options(startingOffsets="earliest", maxOffsetsPerTrigger="10000")
    .load()
)
query = (
    orders.writeStream.foreachBatch(store)
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
