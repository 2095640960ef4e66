"""Turn JSON bodies into the columns of a table.

python json_to_columns.py LOOKUPD_HTTP_ADDRESS TOPIC FOLDER
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from pyspark_nsq import register

lookupd, topic, folder = sys.argv[1:]
spark = SparkSession.builder.appName("json to columns").getOrCreate()
register(spark)

orders = (
    spark.readStream.format("nsq")
    .schema("timestamp timestamp, customer long, price double, nsqd string, sequence long")
    .options(lookupdHttpAddresses=lookupd, topic=topic, channel="table", bodyFormat="json")
    .option("startingOffsets", "earliest")
    .load()
)
query = (
    orders.writeStream.format("parquet")
    .option("path", f"{folder}/table")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)  # without this line the query keeps running
    .start()
)
query.awaitTermination()
table = spark.read.parquet(f"{folder}/table")
table.groupBy("customer").agg(f.round(f.sum("price"), 2).alias("spent")).orderBy("customer").show()
