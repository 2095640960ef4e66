"""Spark's standalone cluster from the pip package: its processes are killed, and jobs are brought to it.

``python -m tests.spark_campaign`` kills for longer, and more kinds of processes.
"""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from pyspark_nsq.jobs.package import write
from tests.spark_campaign.breaking import KINDS
from tests.spark_campaign.run import Run
from tests.spark_campaign.standalone import CONF, SPARK_HOME, Standalone
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

# A job as in docs/spark-reference.md.
JOB = """
import sys
from pyspark.sql import SparkSession
from pyspark_nsq import register

spark = SparkSession.builder.appName("job").getOrCreate()
register(spark)
lookupd, topic, folder = sys.argv[1:]
query = (
    spark.readStream.format("nsq")
    .options(lookupdHttpAddresses=lookupd, topic=topic, channel="job", startingOffsets="earliest")
    .load()
    .selectExpr("cast(body AS string) AS body", "nsqd")
    .writeStream.format("parquet")
    .options(path=folder + "/table", checkpointLocation=folder + "/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print(sorted(row.body for row in spark.read.parquet(folder + "/table").collect()))
"""
# Everything that executors need in addition to the one file.
NEEDED = (
    *("pyspark", "py4j", "numpy", "numpy.libs", "pyarrow", "pandas"),
    *("dateutil", "six.py", "pytz", "tzdata"),
)


@pytest.fixture(scope="module")
def standalone(tmp_path_factory):
    with Standalone(tmp_path_factory.mktemp("spark")) as running:
        yield running


def test_kills_of_cluster_processes_archive_every_message_once(standalone, tmp_path):
    with Run(tmp_path, seed=1, spark=standalone) as run:
        for name in ("everything", "python_worker", "worker", "jvm"):
            # After the first kill this starts the job again.
            run.one_more_batch()
            run.kill(name, KINDS[name])
        # The job reports what has happened, and is started again to read the rest.
        wait_until(run.has_ended, "the job has ended", 60)
        run.note_the_end()
        run.finish()

    assert sum(run.kills.values()) == 4
    assert run.endings == {"killed": 1, "Spark's JVM has died": 1}


@pytest.fixture
def bare_python(tmp_path):
    """A Python that has Spark, numpy and pyarrow, and nothing of this project."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in NEEDED:
        there = Path(pyspark.__file__).parents[1] / name
        if there.exists():
            (packages / name).symlink_to(there)
    program = tmp_path / "python"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH={packages}${{PYTHONPATH:+:$PYTHONPATH}} exec {sys.executable} -S "$@"\n'
    )
    program.chmod(0o755)
    return program


def test_job_is_submitted_with_one_file_to_machines_that_have_nothing_of_ours(
    standalone, nodes, topic, tmp_path, bare_python
):
    for nsqd in nodes.nsqds:
        nodes.publish(nsqd, topic, b"a", b"b")
    job, package = tmp_path / "job.py", tmp_path / "nsq-spark.zip"
    job.write_text(JOB)
    write(package)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    settings = [f"--conf={key}={value}" for key, value in CONF.items()]
    done = subprocess.run(
        [
            *(str(SPARK_HOME / "bin" / "spark-submit"), f"--master={standalone.url}", *settings),
            *(f"--py-files={package}", str(job), nodes.lookupd.http_address, topic, str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={
            **environment,
            "SPARK_HOME": str(SPARK_HOME),
            "PYSPARK_PYTHON": str(bare_python),
            "PYSPARK_DRIVER_PYTHON": str(bare_python),
        },
    )

    told = [line for line in done.stderr.splitlines() if " INFO " not in line and "\tat " not in line]
    assert done.returncode == 0, "\n".join(told[-60:])
    assert done.stdout.splitlines()[-1] == "['a', 'a', 'b', 'b']"
