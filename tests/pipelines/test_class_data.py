"""``./test spark`` keeps Spark's classes in a file before its tests, and Java uses that file."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.spark_jobs import descendants
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

SHOW_MAPS = """
from pathlib import Path
from pyspark import SparkContext
from pyspark_nsq.jobs.session import spark_session

with spark_session("maps", "local[1]", {}) as spark:
    assert spark.range(3).count() == 3
    print(Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text())
"""


def test_java_maps_the_classes_that_were_kept_and_says_nothing():
    from pyspark_nsq.jobs.session import CLASS_DATA

    if not CLASS_DATA.exists():
        subprocess.run([sys.executable, "-m", "pyspark_nsq.jobs.class_data"], check=True, timeout=300)
    job = subprocess.run(
        [sys.executable, "-c", SHOW_MAPS], capture_output=True, text=True, timeout=120, check=True
    )

    assert str(CLASS_DATA) in job.stdout
    assert "[cds]" not in job.stdout + job.stderr


def test_a_run_that_is_stopped_leaves_nothing_and_takes_away_what_killed_ones_left():
    from pyspark_nsq.jobs.session import CLASS_DATA

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(20)
    left = CLASS_DATA.with_name(f"{CLASS_DATA.name}.{ended.pid}")
    left.write_bytes(b"of a run that was killed")
    before = {path for path in CLASS_DATA.parent.glob("nsq-classes.jsa*") if path != left}
    run = subprocess.Popen(
        [sys.executable, "-m", "pyspark_nsq.jobs.class_data"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        wait_until(lambda: not left.exists(), "it has begun", 60)
        wait_until(lambda: any(map(is_java, descendants(run.pid))), "Java runs", 60)
        run.send_signal(signal.SIGTERM)
        _, said = run.communicate(timeout=60)
    finally:
        run.kill()

    assert run.returncode == 1
    assert b"stopped; nothing is kept" in said
    assert set(CLASS_DATA.parent.glob("nsq-classes.jsa*")) == before


def is_java(pid):
    try:
        return Path("/proc", str(pid), "exe").readlink().name == "java"
    except OSError:
        return False
