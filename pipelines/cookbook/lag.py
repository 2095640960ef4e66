"""How far a query is behind, for each nsqd, after each of its batches.

python lag.py LOOKUPD_HTTP_ADDRESS TOPIC FOLDER
"""

import json
import sys

from pyspark.sql import SparkSession

from pyspark_nsq import register

lookupd, topic, folder = sys.argv[1:]
spark = SparkSession.builder.appName("lag").getOrCreate()
register(spark)

query = (
    spark.readStream.format("nsq")
    .options(lookupd_http_addresses=lookupd, topic=topic, channel="lag")
    .options(startingOffsets="earliest", maxOffsetsPerTrigger="4")
    .load()
    .writeStream.format("noop")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
for progress in query.recentProgress:
    latest = progress.sources[0].latestOffset
    state = json.loads(latest) if isinstance(latest, str) else latest
    if state:
        print(f"batch {progress.batchId}: {state['lag']} messages behind, {state['lags']}")
