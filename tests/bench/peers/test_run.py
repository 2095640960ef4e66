"""Small runs of every installed broker: all messages are accounted for and nothing is left behind.

The tests install no broker; the run of a broker that is not on PATH is skipped.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers import brokers
from bench.peers.__main__ import measured
from bench.peers.rows import ROWS

ROOT = Path(__file__).parents[3]
QUICK = ["--messages", "3000", "--backlog", "3000", "--seconds", "0.2", "--repeat", "1"]


def run(tmp_path, *arguments):
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", "bench.peers", "--data-root", str(tmp_path), "--json", str(result)]
    bench = subprocess.Popen(
        [*command, *QUICK, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, said = bench.communicate(timeout=100)
    except BaseException:
        # A kill would leave the brokers running, because each has its own session.
        bench.terminate()
        bench.communicate()
        raise
    assert bench.returncode == 0, said
    assert list(tmp_path.iterdir()) == [result]
    return json.loads(result.read_text())["results"], said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ours", "NATS", "Redis", "RabbitMQ, classic", "RabbitMQ, quorum"])
def test_every_row_of_a_broker_counts_and_a_kill_loses_nothing_it_promised(tmp_path, name):
    if name != "ours" and not any(name in one.name for one in brokers.packaged()):
        pytest.skip("it is not installed")

    found, said = run(tmp_path, "--only", name, "--sizes", "200,mixed")

    assert set(found) == {*ROWS, "crash"}, said
    assert set(found["consume"]) == {"200", "mixed"}
    runs = [one for row in found.values() for size in row.values() for of in size.values() for one in of]
    assert not any("failed" in one for one in runs), said
    assert all(one["lost"] == 0 for of in found["crash"]["200"].values() for one in of)


def test_the_rows_that_can_be_chosen_are_those_that_run():
    assert measured() == ["one", "many", "batches", "shuffled", "both", "latency", "crash"]
