"""The servers that the benchmark starts."""

import socket

import pytest

from bench import server
from bench.ports import free_port
from bench.server import NULL, PortTakenError, Program


def test_a_port_that_another_program_took_in_between_is_replaced_by_another(monkeypatch):
    with socket.create_server(("127.0.0.1", free_port())) as other:
        (_, taken) = other.getsockname()
        ports = iter((taken, free_port(), free_port(), free_port()))
        monkeypatch.setattr(server, "free_port", lambda: next(ports))

        with Program("null", NULL, null=True).serving() as started:
            assert started.tcp[1] != taken
            started.ask("GET", "/ping")

    assert next(ports, None) is None


def test_a_command_with_a_port_of_its_own_that_is_taken_fails():
    with socket.create_server(("127.0.0.1", free_port())) as other:
        own = NULL.replace("{tcp}", f"127.0.0.1:{other.getsockname()[1]}")

        with pytest.raises(PortTakenError, match="address already in use"), Program("null", own).serving():
            pass
