"""A daemon without free file descriptors: it serves its clients, and new ones wait until some are free."""

import http.client
import resource
import socket
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from tests.support.wire import Wire

SPARE = 2
FAILED = "accept failed, new clients have to wait - Too many open files"


class V2:
    """A client of nsqd's TCP port."""

    def __init__(self, daemon):
        self.wire = Wire(("127.0.0.1", daemon.tcp_port))

    def works(self):
        self.wire.publish("t#ephemeral", b"m")

    def close(self):
        self.wire.close()


class V1:
    """A client of nsqlookupd's TCP port."""

    def __init__(self, daemon):
        self.socket = socket.create_connection(("127.0.0.1", daemon.tcp_port), timeout=10)
        self.socket.sendall(b"  V1")

    def works(self):
        self.socket.sendall(b"PING\n")
        assert self.socket.recv(6) == b"\0\0\0\x02OK"

    def close(self):
        self.socket.close()


class Http:
    """A client that keeps its connection to the HTTP port."""

    def __init__(self, daemon):
        self.connection = http.client.HTTPConnection("127.0.0.1", daemon.http_port, timeout=10)
        self.connection.connect()

    def works(self):
        self.connection.request("GET", "/ping")
        assert self.connection.getresponse().read() == b"OK"

    def close(self):
        self.connection.close()


def only_few_more(daemon):
    """Let the daemon open at most SPARE more descriptors."""
    used = max(int(entry.name) for entry in Path(f"/proc/{daemon.pid}/fd").iterdir()) + 1
    _, hard = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (used + SPARE, hard))


@pytest.mark.parametrize(
    ("program", "client"),
    [("nsqd", V2), ("nsqd", Http), ("nsqlookupd", V1), ("nsqlookupd", Http), ("nsqadmin", Http)],
)
def test_daemon_without_descriptors_serves_old_clients_and_new_ones_wait(cluster, program, client):
    daemon = {
        "nsqd": cluster.nsqd,
        "nsqlookupd": cluster.nsqlookupd,
        "nsqadmin": lambda: cluster.nsqadmin("--nsqd-http-address=127.0.0.1:1"),
    }[program]()
    first = client(daemon)
    first.works()
    only_few_more(daemon)

    crowd = [client(daemon) for _ in range(SPARE + 8)]
    wait_until(lambda: FAILED in daemon.logs(), "accepting fails")
    for _ in range(3):
        first.works()
    last = client(daemon)
    for other in crowd:
        other.close()

    last.works()
    first.works()
    # accept() needs a free descriptor even to say that no client waits, and the daemon may use one itself.
    last.close()
    wait_until(lambda: "accepting again after" in daemon.logs(), "the end of the shortage is logged")
    assert daemon.logs().count("accept failed") == 1
    assert "Traceback" not in daemon.logs()
    first.close()
