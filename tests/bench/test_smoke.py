"""Each benchmark runs at a small size, accounts for every message and leaves no file behind."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from bench import counted, growth, load, soak

ROOT = Path(__file__).parents[2]
OURS = f"{sys.executable} -m nsqd --tcp-address {{tcp}} --http-address {{http}} --data-path {{data}}"


def bench(module, folder, *arguments):
    """Run a benchmark as a command; return the rows that it has saved."""
    result = folder / "result.json"
    command = [sys.executable, "-m", module, "--data-root", str(folder), "--json", str(result), *arguments]
    running = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True
    )
    try:
        _, errors = running.communicate(timeout=100)
    except BaseException:
        # A kill would leave the brokers running, because each has its own session.
        running.terminate()
        running.communicate()
        raise
    assert running.returncode == 0, errors
    assert list(folder.iterdir()) == [result]
    return json.loads(result.read_text())


@pytest.mark.slow
def test_bench_measures_two_servers_in_turns(tmp_path):
    quick = ["--messages=2000", "--seconds=0.3", "--repeat=2"]

    found = bench("bench", tmp_path, *quick, "--rows=sub,both", f"--peer-cmd={OURS}")

    assert {row: {name: len(runs) for name, runs in of.items()} for row, of in found["rows"].items()} == {
        "sub": {"ours": 2, "peer": 2},
        "both": {"ours": 2, "peer": 2},
    }


def test_growth_measures_channels(tmp_path):
    result = tmp_path / "costs.json"
    quick = ["--messages=2000", "--most=10", f"--data-root={tmp_path}", f"--json={result}"]

    assert growth.main(["--of=channels", *quick]) == 0

    assert json.loads(result.read_text()).keys() == {"channels"}
    assert list(tmp_path.iterdir()) == [result]


def test_soak_names_types_that_grew():
    before = Counter({"nsqd.engine.topic.Topic": 8, "builtins.list": 1000})
    after = Counter(
        {"nsqd.engine.topic.Topic": 60, "builtins.list": 1010, "nsqd.server.tcp.ClientConnection": 30}
    )

    assert soak.objects_left(before, after) == [
        "52 more objects of nsqd.engine.topic.Topic are alive: 60",
        "30 more objects of nsqd.server.tcp.ClientConnection are alive: 30",
    ]


def test_soak_counts_objects_of_process_after_collection(tmp_path):
    command = ["bench.counted", f"--data-path={tmp_path}", "--tcp-address=127.0.0.1:0", "--http-address="]
    with subprocess.Popen(
        [sys.executable, "-m", *command], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            port = next(int(line.rsplit(":", 1)[1]) for line in process.stderr if "TCP: listening" in line)
            before = counted.objects_of(process.pid)
            connections = [load.connect(("127.0.0.1", port)) for _ in range(30)]
            during = counted.objects_of(process.pid)
            for connection in connections:
                connection.close()
            time.sleep(0.5)
            after = counted.objects_of(process.pid)
        finally:
            process.kill()

    kind = "nsqd.server.tcp.ClientConnection"
    assert (before[kind], during[kind], after[kind]) == (0, 30, 0)
