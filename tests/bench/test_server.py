"""The servers that the benchmark starts."""

import socket

from bench import server
from bench.ports import free_port
from bench.server import NULL, Program


def test_a_port_that_another_program_took_in_between_is_replaced_by_another(monkeypatch):
    with socket.create_server(("127.0.0.1", free_port())) as other:
        (_, taken) = other.getsockname()
        ports = iter((taken, free_port(), free_port(), free_port()))
        monkeypatch.setattr(server, "free_port", lambda: next(ports))

        with Program("null", NULL, null=True).serving() as started:
            assert started.tcp[1] != taken
            started.ask("GET", "/ping")

    assert next(ports, None) is None
