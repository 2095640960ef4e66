"""Spark's classes are kept in a file, by ``./test spark`` before its tests; Java uses it."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

SHOW_MAPS = """
from pathlib import Path
from pyspark import SparkContext
from pipelines.jobs.session import spark_session

with spark_session("maps", "local[1]", {}) as spark:
    assert spark.range(3).count() == 3
    print(Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text())
"""


def test_java_maps_the_classes_that_were_kept_and_says_nothing():
    from pipelines.jobs.session import CLASS_DATA

    if not CLASS_DATA.exists():
        subprocess.run([sys.executable, "-m", "pipelines.jobs.class_data"], check=True, timeout=300)
    job = subprocess.run(
        [sys.executable, "-c", SHOW_MAPS], capture_output=True, text=True, timeout=120, check=True
    )

    assert str(CLASS_DATA) in job.stdout
    assert "[cds]" not in job.stdout + job.stderr
