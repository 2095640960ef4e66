"""Every message once in a database: a batch may come twice, but nsqd and sequence identify its rows.

python into_a_database.py LOOKUPD_HTTP_ADDRESS TOPIC FOLDER
"""

import sqlite3
import sys

from pyspark.sql import DataFrame, SparkSession

from pyspark_nsq import register

lookupd, topic, folder = sys.argv[1:]
spark = SparkSession.builder.appName("into a database").getOrCreate()
register(spark)
database = f"{folder}/orders.db"


def store(batch: DataFrame, _number: int) -> None:
    """Store a batch in one transaction; a row that already exists is not changed."""
    rows = batch.select("nsqd", "sequence", "customer", "price").collect()
    with sqlite3.connect(database) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS orders "
            "(nsqd TEXT, sequence INTEGER, customer INTEGER, price REAL, PRIMARY KEY (nsqd, sequence))"
        )
        connection.executemany("INSERT OR IGNORE INTO orders VALUES (?, ?, ?, ?)", rows)
    connection.close()


orders = (
    spark.readStream.format("nsq")
    .schema("nsqd string, sequence long, customer long, price double")
    .options(lookupdHttpAddresses=lookupd, topic=topic, channel="database", bodyFormat="json")
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
