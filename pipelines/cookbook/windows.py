"""Orders and their value for each minute, written once when the minute is over.

python windows.py LOOKUPD_HTTP_ADDRESS TOPIC FOLDER
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from pyspark_nsq import register

lookupd, topic, folder = sys.argv[1:]
# Each partition keeps its own state; Spark's default of 200 is for a large cluster.
builder = SparkSession.builder.appName("windows").config("spark.sql.shuffle.partitions", "4")
spark = builder.getOrCreate()
register(spark)

orders = (
    spark.readStream.format("nsq")
    .schema("timestamp timestamp, price double")
    .options(lookupdHttpAddresses=lookupd, topic=topic, channel="windows", bodyFormat="json")
    .option("startingOffsets", "earliest")
    .load()
)
minutes = (
    # A message that comes more than ten minutes late is left out, and a minute is closed ten minutes later.
    orders.withWatermark("timestamp", "10 minutes")
    .groupBy(f.window("timestamp", "1 minute"))
    .agg(f.count("*").alias("orders"), f.round(f.sum("price"), 2).alias("value"))
    .select("window.start", "orders", "value")
)
query = (
    minutes.writeStream.outputMode("complete")  # "append" with a sink of files, which cannot change a row
    .format("memory")
    .queryName("minutes")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.table("minutes").orderBy("start").show(truncate=False)
