"""Spark's exceptions become one sentence."""

import pickle
import traceback

import pytest

from pyspark_nsq.jobs.sentences import sentence
from pyspark_nsq.source.errors import (
    CheckpointError,
    DataLossError,
    OptionError,
    RowError,
    SourceError,
    UnreachableError,
)

TRACEBACK = """Traceback (most recent call last):
  File "x.py", line 1, in <module>
pyspark_nsq.source.errors.DataLossError: nsqd a:1 has lost messages
 SQLSTATE: 38000"""

IN_A_WORKER = """[STREAM_FAILED] Query terminated with exception: Traceback (most recent call last):
  File "x.py", line 1, in <module>
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "y.py", line 2, in read
    raise ValueError("no such file")
ValueError: no such file
 SQLSTATE: 39000"""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SourceError("it failed"), "[NSQ_FAILED] it failed"),
        (OptionError("it failed"), "[NSQ_INVALID_OPTION] it failed"),
        (UnreachableError("it failed"), "[NSQ_UNREACHABLE] it failed"),
        (CheckpointError("it failed"), "[NSQ_WRONG_CHECKPOINT] it failed"),
        (RowError("it failed"), "[NSQ_INVALID_ROW] it failed"),
        (DataLossError("it failed"), "[NSQ_DATA_LOSS] it failed"),
    ],
)
def test_error_has_class_in_spark_and_sentence_at_terminal(error, text):
    in_spark = "".join(traceback.format_exception(pickle.loads(pickle.dumps(error))))

    assert str(error) == text
    assert in_spark.endswith(f"{type(error).__name__}: {text}\n")
    assert sentence(RuntimeError(in_spark)) == "it failed"


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        (TRACEBACK, "nsqd a:1 has lost messages"),
        (
            "ModuleNotFoundError: No module named 'pipelines'\n SQLSTATE: 38000",
            "the executors' Python has no pipelines:",
        ),
        (
            "Query [id = 1] terminated with exception:  SQLSTATE: XXKST\n=== Streaming",
            "the Python process that plans",
        ),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Connection reset SQLSTATE: XXKST",
            "the Python process that plans",
        ),
        ("SparkException: Python worker exited unexpectedly (crashed)", "a Python worker of Spark has died"),
        (
            IN_A_WORKER,
            "an error in Python code that Spark has run: ValueError: no such file",
        ),
        ("Answer from Java side is empty", "Spark's JVM has died"),
        ("[Errno 111] Connection refused", "Spark's JVM has died"),
        ("[NEW] Something else.\nat org.apache", "[NEW] Something else."),
    ],
    ids=["ours", "package", "planner", "planner reset", "worker", "python", "java", "java away", "other"],
)
def test_error_becomes_sentence(text, beginning):
    assert sentence(RuntimeError(text)).startswith(beginning)


def test_error_without_words_has_its_name():
    assert sentence(KeyboardInterrupt()) == "KeyboardInterrupt"
