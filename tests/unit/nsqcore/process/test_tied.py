"""A child that is tied to its parent ends with it, however the parent ends."""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.support.waiting import wait_until

PARENT = """
import os, subprocess, sys, time
from nsqcore.process.tied import tie_to_parent
tied = tie_to_parent(os.getpid())
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], preexec_fn=tied)
print(child.pid, flush=True)
time.sleep(3600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of the death of their parent")
def test_child_ends_when_its_parent_is_killed():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()

    try:
        wait_until(lambda: _has_ended(child), "the child has ended")
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(child, signal.SIGKILL)
        os.close(child)


def _has_ended(process: int) -> bool:
    return bool(select.select([process], [], [], 0)[0])
