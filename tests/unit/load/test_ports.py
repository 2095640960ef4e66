import socket

from load.ports import LAST_PORT, free_port, is_free


def test_free_port_is_none_that_outgoing_connection_takes():
    port = free_port()

    assert 10_000 <= port <= LAST_PORT
    assert is_free(port)


def test_port_with_listener_is_not_free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])
