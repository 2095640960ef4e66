"""Show how far a query is behind, for each nsqd, after each of its batches.

python lag.py LOOKUPD_HTTP_ADDRESS TOPIC FOLDER [MESSAGES_OF_A_BATCH]
"""

import sys

from pyspark.sql import SparkSession

from pyspark_nsq import register, report_lag
from pyspark_nsq.lag_metrics import lags_of

lookupd, topic, folder, *most = sys.argv[1:]
spark = SparkSession.builder.appName("lag").getOrCreate()
register(spark)
# From here on the lag is also among Spark's metrics, for Prometheus and others.
report_lag(spark)

query = (
    spark.readStream.format("nsq")
    .options(lookupdHttpAddresses=lookupd, topic=topic, channel="lag")
    .options(startingOffsets="earliest", maxOffsetsPerTrigger=most[0] if most else "5000")
    .load()
    .writeStream.format("noop")
    .queryName(topic)
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
for progress in query.recentProgress:
    if lags := lags_of(progress):
        print(f"batch {progress.batchId}: {sum(lags.values())} messages behind, {lags}")
