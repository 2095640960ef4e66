import asyncio
import errno
import io
import socket

import pytest

from nsqcore.process.lifecycle import StartupError
from nsqcore.process.listen import (
    TcpServer,
    bind,
    listen_port,
    peer_ip,
    shown_address,
    shown_peer,
)
from nsqcore.process.logs import Log


def test_peer_is_shown_by_address_and_port():
    assert shown_peer(("127.0.0.1", 5)) == "127.0.0.1:5"
    assert shown_peer(("::1", 5, 0, 0)) == "[::1]:5"
    assert shown_peer("") == "@"
    assert (peer_ip(("::ffff:10.0.0.1", 5, 0, 0)), peer_ip(("::ffff:0:1", 5, 0, 0))) == (
        "10.0.0.1",
        "::ffff:0:1",
    )
    assert peer_ip("") == ""


def test_port_0_binds_free_port_and_tells_which():
    with bind("127.0.0.1:0") as sock:
        assert shown_address(sock) == f"127.0.0.1:{listen_port(sock)}"
        assert listen_port(sock)


def test_port_in_use_is_one_sentence():
    with bind("127.0.0.1:0") as first:
        address = shown_address(first)
        with pytest.raises(StartupError) as refused:
            bind(address)

    assert (
        str(refused.value)
        == f"listen ({address}) failed - listen tcp {address}: bind: address already in use"
    )


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("nohost", "listen (nohost) failed - listen tcp: address nohost: missing port in address"),
        (
            "127.0.0.1:99999",
            "listen (127.0.0.1:99999) failed - listen tcp: address 127.0.0.1:99999: invalid port 99999",
        ),
        (
            "198.51.100.7:0",
            "failed - listen tcp 198.51.100.7:0: bind: cannot assign requested address",
        ),
        ("no.such.host.invalid:1", "listen tcp: lookup no.such.host.invalid: no such host"),
    ],
)
def test_address_that_cannot_be_bound_is_one_sentence(address, sentence):
    with pytest.raises(StartupError) as refused:
        bind(address)

    assert sentence in str(refused.value)


@pytest.mark.parametrize("address", [":0", "0.0.0.0:0", "[::]:0"])
@pytest.mark.parametrize("own", ["127.0.0.1", "::1"])
def test_port_alone_and_default_address_take_every_interface_of_both_families(address, own):
    with bind(address) as sock:
        try:
            client = socket.create_connection((own, listen_port(sock)), 5)
        except OSError as error:
            if error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT} and own == "::1":
                pytest.skip("this machine has no IPv6")
            raise
        with client:
            accepted, peer = sock.accept()
            accepted.close()
            assert shown_peer(peer) == shown_peer(client.getsockname())
            assert peer_ip(peer) == own


def test_default_address_in_use_is_named_as_it_was_given():
    with bind("0.0.0.0:0") as first:
        address = f"0.0.0.0:{listen_port(first)}"
        with pytest.raises(StartupError) as refused:
            bind(address)

    assert f"listen tcp {address}: bind: address already in use" in str(refused.value)


def test_socket_file_of_killed_daemon_is_no_obstacle(tmp_path):
    path = str(tmp_path / "nsqd.sock")
    bind(path, allow_unix=True).close()  # the file stays without a listener

    with bind(path, allow_unix=True) as sock:
        assert shown_address(sock) == path
        assert listen_port(sock) is None


def test_socket_file_of_running_daemon_stays(tmp_path):
    path = str(tmp_path / "nsqd.sock")
    with bind(path, allow_unix=True), pytest.raises(StartupError) as refused:
        bind(path, allow_unix=True)

    assert str(refused.value) == f"listen ({path}) failed - listen unix {path}: bind: address already in use"


def test_ordinary_file_is_never_removed(tmp_path):
    path = tmp_path / "data"
    path.write_text("precious")

    with pytest.raises(StartupError):
        bind(str(path), allow_unix=True)
    assert path.read_text() == "precious"


async def test_stopped_server_removes_its_socket_file(tmp_path):
    path = tmp_path / "nsqd.sock"
    lines = io.StringIO()
    server = TcpServer("TCP", bind(str(path), allow_unix=True), Log("", stream=lines))
    await server.start(asyncio.Protocol)
    assert path.exists()

    await server.close()

    assert not path.exists()
    assert [line.split(" ", 2)[2] for line in lines.getvalue().splitlines()] == [
        f"INFO: TCP: listening on {path}",
        f"INFO: TCP: closing {path}",
    ]
