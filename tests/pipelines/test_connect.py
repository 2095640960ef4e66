"""Spark Connect: a client without a JVM, a server that knows the format by itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.conftest import depth

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

# A separate program, because a process can have only one kind of session.
CLIENT = """
import sys
from pyspark.sql import SparkSession

lookupd, topic, folder = sys.argv[1:]
builder = SparkSession.builder.remote("local[2]").config("spark.driver.memory", "1g")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
print(type(spark).__module__)
options = {"lookupdHttpAddresses": lookupd, "topic": topic}
print(spark.read.format("nsq").options(**options).load().count())
query = (
    spark.readStream.format("nsq")
    .schema("order long, nsqd string")
    .options(**options, channel="connect", startingOffsets="earliest", bodyFormat="json")
    .load()
    .selectExpr("to_json(struct(order)) AS body")
    .writeStream.format("nsq")
    .options(lookupdHttpAddresses=lookupd, topic=topic + "-copy", checkpointLocation=folder + "/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
copy = spark.read.format("nsq").options(lookupdHttpAddresses=lookupd, topic=topic + "-copy").load()
print(sorted(bytes(row.body).decode() for row in copy.collect()))
spark.stop()
"""


def test_client_of_spark_connect_reads_and_writes_topics(nodes, topic, tmp_path):
    for number, nsqd in enumerate(nodes.nsqds):
        nodes.publish(nsqd, topic, b'{"order": %d}' % number)
        nsqd.post(f"/topic/create?topic={topic}-copy")
        nodes.listed(nsqd, f"{topic}-copy")
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CLIENT, nodes.lookupd.http_address, topic, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(map(str, (root / "client", root / "pipelines"))),
        },
    )

    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() == [
        "pyspark.sql.connect.session",
        "2",
        """['{"order":0}', '{"order":1}']""",
    ]
    assert [depth(nsqd, topic, "connect") for nsqd in nodes.nsqds] == [0, 0]
