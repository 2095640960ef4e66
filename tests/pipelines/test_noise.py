"""The lines that Java and Spark print at each start are kept from the terminal; all other lines reach it."""

import logging
import os
import subprocess
import sys

import pytest

from pyspark_nsq.jobs.noise import hush_py4j, is_noise


@pytest.mark.parametrize(
    "line",
    [
        b"WARNING: Using incubator modules: jdk.incubator.vector\n",
        b"Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties\n",
        b"26/11/22 20:52:02 WARN Utils: Your hostname, vm, resolves to a loopback address: 127.0.0.1\n",
        b"26/11/22 20:52:07 WARN NativeCodeLoader: Unable to load native-hadoop library\n",
        b'Setting Spark log level to "OFF".\n',
    ],
)
def test_what_is_said_at_each_start_is_noise(line):
    assert is_noise(line)


@pytest.mark.parametrize(
    "line",
    [
        b"nsqd 127.0.0.1:4151 joins the query with 10 messages\n",
        b"Error: JAVA_HOME is not set\n",
        b"26/11/22 20:52:07 WARN TaskSetManager: Lost task 0.0\n",
        b"java.lang.OutOfMemoryError: Java heap space\n",
    ],
)
def test_what_somebody_should_read_is_none(line):
    assert not is_noise(line)


def test_a_process_is_heard_without_its_noise():
    program = (
        "import os, subprocess, time\n"
        "from pyspark_nsq.jobs.noise import QuietPipe\n"
        "pipe = QuietPipe()\n"
        "words = ['sh', '-c', 'echo Setting default log level to x >&2; echo a reason >&2']\n"
        "child = subprocess.Popen(words, stderr=pipe.end)\n"
        "pipe.close()\n"
        "child.wait()\n"
        "pipe.join()\n"
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )

    assert done.stderr == "a reason\n"


def test_only_errors_of_threads_that_talk_with_a_dead_jvm_are_noise(caplog):
    hush_py4j()
    root = logging.getLogger()

    for path in ("/lib/py4j/java_gateway.py", "/home/me/job.py"):
        record = root.makeRecord("root", logging.ERROR, path, 1, "Exception while sending", (), None)
        root.handle(record)
    logging.getLogger("py4j.clientserver").error("There was an exception")
    logging.getLogger("mine").error("mine")
    said = [(record.name, record.pathname.rpartition("/")[2]) for record in caplog.records]

    assert said == [("root", "job.py"), ("mine", "test_noise.py")]
