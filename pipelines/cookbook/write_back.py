"""A topic made from another one: large orders go to a topic of their own, at least once.

python write_back.py LOOKUPD_HTTP_ADDRESS FROM_TOPIC TO_TOPIC FOLDER
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from pyspark_nsq import register

lookupd, source, target, folder = sys.argv[1:]
spark = SparkSession.builder.appName("write back").getOrCreate()
register(spark)

orders = (
    spark.readStream.format("nsq")
    .schema("customer long, price double")
    .options(lookupdHttpAddresses=lookupd, topic=source, channel="large", bodyFormat="json")
    .option("startingOffsets", "earliest")
    .load()
)
large = orders.filter("price > 100").select(f.to_json(f.struct("customer", "price")).alias("body"))
query = (
    large.writeStream.format("nsq")
    .options(lookupdHttpAddresses=lookupd, topic=target)
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
