"""The daemons that a run starts by itself."""

import socket

import pytest

from bench.ports import free_port
from load.started import NotStarted, StartedDaemon


def lookupd(tmp_path, *ports):
    """An nsqlookupd that finds these ports free, one after the other."""
    found = iter(ports)
    return StartedDaemon("nsqlookupd", tmp_path / "nsqlookupd", [], ("tcp", "http"), lambda: next(found))


def listens(daemon, kind):
    host, port = daemon.address(kind).split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_daemon_whose_port_was_taken_gets_others_and_keeps_them(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        daemon = lookupd(tmp_path, free_port(), other.getsockname()[1], free_port(), free_port())
        daemon.start()
    addresses = [daemon.address("tcp"), daemon.address("http")]

    daemon.kill()
    daemon.start()

    assert [daemon.address("tcp"), daemon.address("http")] == addresses
    assert listens(daemon, "tcp")
    assert listens(daemon, "http")
    daemon.stop()
    assert not listens(daemon, "http")


def test_daemon_whose_ports_are_always_taken_says_so_after_four_tries(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        daemon = lookupd(tmp_path, *[taken] * 8)

        with pytest.raises(NotStarted, match="address already in use"):
            daemon.start()
