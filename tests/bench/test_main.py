"""The benchmark as a command: it starts servers, checks what it counted, and leaves nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bench(tmp_path, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "bench", "--data-root", str(tmp_path), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [["--size", "100"], ["--sizes", "mixed"]])
def test_every_row_runs_on_two_servers_in_turn_and_every_message_is_accounted_for(tmp_path, sizes):
    result_path = tmp_path / "result.json"
    quick = ["--messages", "2000", "--seconds", "0.3", "--repeat", "2", "--json", str(result_path)]
    ours = f"{sys.executable} -m nsqd --tcp-address {{tcp}} --http-address {{http}} --data-path {{data}}"

    done = bench(tmp_path, *quick, *sizes, "--peer-cmd", ours)

    assert done.returncode == 0, done.stderr
    rows = json.loads(result_path.read_text())["rows"]
    assert set(rows) == {"mpub", "mpub1", "pub", "sub", "both", "fanout", "http"}
    assert all(len(samples) == 2 for row in rows.values() for samples in row.values())
    assert [sample["messages"] for sample in rows["sub"]["ours"]] == [2000, 2000]
    order = [line.split()[2] for line in done.stderr.splitlines() if line.startswith("sub")]
    assert order == ["ours", "peer", "ours", "peer"]
    assert list(tmp_path.iterdir()) == [result_path]


def test_a_server_that_does_not_start_is_one_sentence_with_its_last_words(tmp_path):
    done = bench(tmp_path, "--rows", "sub", "--cmd", "sh -c 'echo no disk today; exit 3'")

    assert done.returncode == 1
    assert "does not answer" in done.stderr
    assert "no disk today" in done.stderr
    assert not list(tmp_path.iterdir())


def test_an_unknown_row_is_refused_before_anything_starts(tmp_path):
    done = bench(tmp_path, "--rows", "sub,nonsense")

    assert done.returncode == 2
    assert "no such row: nonsense" in done.stderr
