"""The log lines about batches, and the last actions of a job."""

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyspark_nsq.jobs.run import QueryRun
from tests.pipelines.spark_jobs import Archive
from tests.support.waiting import wait_until


def progress(batch, rows):
    return SimpleNamespace(
        batchId=batch, numInputRows=rows, batchDuration=1000, sources=[SimpleNamespace(latestOffset=None)]
    )


def test_each_batch_is_told_and_asked_for_once_and_sum_is_kept(capsys):
    messages = {0: 5, 2: 7}
    query = SimpleNamespace(recentProgress=[progress(0, 1), progress(1, 0)])
    run = QueryRun(query, lambda one: messages.pop(one.batchId))
    run.update()
    query.recentProgress = [progress(0, 1), progress(1, 0), progress(2, 1)]
    run.update()
    run.update()

    assert run.messages == 12
    assert messages == {}
    assert [line.partition(" in ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "batch 0: 5 messages",
        "batch 2: 7 messages",
    ]


def handles(pid, number):
    """Whether a process has a handler for a signal."""
    (caught,) = [
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt")
    ]
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_job_that_was_told_to_end_does_not_begin_to_compact(tmp_path, topic):
    archive = Archive(tmp_path, "127.0.0.1:1", topic, "--available-now", "--table=delta", "--compact")
    process = archive.spawn()
    try:
        wait_until(lambda: handles(process.pid, signal.SIGTERM), "it handles the signal", 60)
        process.send_signal(signal.SIGTERM)
        code, last = archive.wait(200)
    finally:
        archive.kill()

    # There is no table yet, so a compaction would fail.
    assert (code, last.split(" in ")[0]) == (0, "0 messages archived")
