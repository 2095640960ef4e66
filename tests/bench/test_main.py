"""The benchmark as a command: it starts servers, checks what it counted, and leaves nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.rows import GROUPS, ROWS

ROOT = Path(__file__).parents[2]
QUICK = ["--messages", "2000", "--seconds", "0.3"]


def bench(tmp_path, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "bench", "--data-root", str(tmp_path), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_every_row_runs_and_gives_each_of_its_figures(tmp_path, group):
    result_path = tmp_path / "result.json"

    done = bench(tmp_path, *QUICK, "--rows", group, "--repeat", "1", "--null", "--json", str(result_path))

    assert done.returncode == 0, done.stderr
    rows = json.loads(result_path.read_text())["rows"]
    assert {name: set(runs["ours"][0]) for name, runs in rows.items()} == {
        row.name: {figure.name for figure in row.figures} for row in GROUPS[group]
    }
    assert {name for name, runs in rows.items() if "null server" in runs} == {
        row.name for row in GROUPS[group] if row.null
    }
    assert list(tmp_path.iterdir()) == [result_path]


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [["--size", "100"], ["--sizes", "mixed"]])
def test_two_servers_take_turns_and_every_message_is_accounted_for(tmp_path, sizes):
    result_path = tmp_path / "result.json"
    result_path.write_text(json.dumps({"rows": {"mpub": {"ours": [{"rate": [5, 1, 1]}]}}}))
    ours = f"{sys.executable} -m nsqd --tcp-address {{tcp}} --http-address {{http}} --data-path {{data}}"
    kept = ["--json", str(result_path), "--add"]

    done = bench(tmp_path, *QUICK, *sizes, *kept, "--rows", "sub,both", "--repeat", "2", "--peer-cmd", ours)

    assert done.returncode == 0, done.stderr
    rows = json.loads(result_path.read_text())["rows"]
    assert set(rows) == {"mpub", "sub", "both"}
    assert rows["mpub"] == {"ours": [{"rate": [5, 1, 1]}]}
    assert [len(rows["sub"][name]) for name in ("ours", "peer")] == [2, 2]
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


def test_rows_that_start_servers_are_refused_for_one_that_runs_already(tmp_path):
    own = next(row.name for row in ROWS.values() if row.own)

    done = bench(tmp_path, "--rows", own, "--nsqd", "127.0.0.1:1")

    assert done.returncode == 2
    assert own in done.stderr
