"""A broker's processes and their children are measured, killed, restarted, and all ended at the end."""

import sys
from contextlib import closing
from pathlib import Path

import pytest

from bench.load import LoadError
from bench.peers.process import Command, _session, flushes, free_pair, running
from bench.peers.speech import opened

SERVER = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    while True:
        server.accept()[0].close()
"""


def through_a_script(_folder, port):
    # Without exec, so that the server is a child of the shell.
    return [Command(["sh", "-c", f"{sys.executable} -c '{SERVER}' {port}; true"])]


def ready(address):
    with closing(opened(address)):
        pass


def test_it_is_measured_with_its_children_killed_started_again_and_gone_at_the_end(tmp_path):
    with running(through_a_script, ready, tmp_path / "data") as one:
        sessions = [one._main.pid]

        assert len(_session(one._main.pid)) == 2
        assert one.memory_mib() > 1
        assert one.cpu_seconds() >= 0

        one.kill()

        with pytest.raises(OSError, match="refused"):
            ready(one.address)

        one.start_again()
        one.wait()
        one.hold()
        sessions.append(one._main.pid)

    assert [_session(leader) for leader in sessions] == [{}, {}]


def test_a_broker_that_ends_at_its_start_says_why(tmp_path):
    def broken(_folder, _port):
        return [Command(["sh", "-c", "echo no room >&2; false"])]

    with pytest.raises(LoadError, match="no room"), running(broken, ready, tmp_path):
        pass


def test_the_flushes_of_a_disk_are_counted_where_the_kernel_says(tmp_path):
    found = flushes(tmp_path)

    assert found is None or found >= 0
    assert Path("/proc/diskstats").exists() or found is None


def test_two_ports_in_a_row_are_free():
    assert free_pair()[1] < 65_535
