"""The processor time of another process."""

import os
import subprocess
import sys
import time

import pytest

from bench.cpu import process_seconds


def test_a_process_knows_of_another_what_that_one_knows_of_itself():
    look = "import time; sum(range(300_000)); print(time.process_time(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", look], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as one:
        said = float(one.stdout.readline())

        assert said <= process_seconds(one.pid)
        one.communicate("\n")


def test_less_than_a_hundredth_of_a_second_is_counted():
    before = process_seconds(os.getpid())
    until = time.process_time() + 0.001
    while time.process_time() < until:
        pass

    assert process_seconds(os.getpid()) - before >= 0.001


def test_a_process_that_is_gone_is_an_error():
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass

    with pytest.raises(OSError):
        process_seconds(gone.pid)
