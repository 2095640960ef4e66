"""The log lines about batches, and the last actions of a job."""

import os
import signal
from contextlib import contextmanager
from types import SimpleNamespace

from pyspark_nsq.jobs import archive, session
from pyspark_nsq.jobs.run import QueryRun


def progress(batch, rows):
    return SimpleNamespace(
        batchId=batch, numInputRows=rows, batchDuration=1000, sources=[SimpleNamespace(latestOffset=None)]
    )


def test_batch_is_reported_once_and_its_messages_are_counted(capsys):
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


def test_job_that_gets_signal_before_its_query_neither_reads_nor_compacts(monkeypatch, capsys):
    @contextmanager
    def slow_start(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        yield None

    monkeypatch.setattr(session, "spark_session", slow_start)
    flags = ("--lookupd-http-address=l:1", "--topic=t", "--channel=c", "--output=o", "--checkpoint=c")

    # There is neither a session nor a table, so a query or a compaction would fail.
    assert archive.main([*flags, "--available-now", "--table=delta", "--compact"]) == 0
    assert capsys.readouterr().out.startswith("0 messages archived in ")
