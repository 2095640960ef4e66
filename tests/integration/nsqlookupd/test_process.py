"""nsqlookupd as a process: flags, log lines, signals and exit codes."""

import socket

import pytest

from nsqcore.lookup_protocol import MAGIC_V1, encode_identify
from nsqcore.version import build
from tests.support import beside


@pytest.mark.executed
def test_nsqlookupd_logs_addresses_and_stops_cleanly(cluster):
    lookupd = cluster.nsqlookupd()
    info = lookupd.get("/info")
    if beside.OURS:
        assert info.pop("build") == build()
    assert info == {"version": "1.3.0"}

    assert lookupd.stop() == 0
    texts = [line.split(" ", 3)[3] for line in lookupd.logs().splitlines()]
    assert texts[0].startswith("INFO: nsqlookupd v1.3.0 (built w/")
    opening, closing = texts[1:3], texts[4:]
    expected = [
        f"INFO: TCP: listening on {lookupd.tcp_address}",
        f"INFO: HTTP: listening on {lookupd.http_address}",
    ]
    assert (opening if beside.OURS else sorted(opening, reverse=True)) == expected  # Go's: any order
    ended = [f"INFO: HTTP: closing {lookupd.http_address}", f"INFO: TCP: closing {lookupd.tcp_address}"]
    assert (closing if beside.OURS else sorted(closing)) == ended
    assert texts[3].startswith("INFO: 200 GET /info (127.0.0.1:")


def test_stop_closes_connections_of_nsqd(cluster):
    lookupd = cluster.nsqlookupd()
    with socket.create_connection(("127.0.0.1", lookupd.tcp_port), 10) as nsqd:
        fields = {"broadcast_address": "a", "tcp_port": 1, "http_port": 2, "version": "1"}
        nsqd.sendall(MAGIC_V1 + encode_identify(fields))
        assert nsqd.recv(4096)

        assert lookupd.stop() == 0
        assert nsqd.recv(4096) == b""


def test_port_in_use_is_one_fatal_line_and_exit_code_1(cluster):
    first = cluster.nsqlookupd()
    second = cluster.daemon("nsqlookupd", [])
    second.ports["tcp"] = first.tcp_port

    assert second.spawn().wait() == 1
    address = first.tcp_address
    assert second.logs().endswith(
        f" FATAL: failed to instantiate nsqlookupd - listen ({address}) failed"
        f" - listen tcp {address}: bind: address already in use\n"
    )


def test_address_without_port_is_refused(cluster):
    lookupd = cluster.daemon("nsqlookupd", ["--tcp-address=nohost"])

    assert lookupd.spawn().wait() == 1
    assert lookupd.logs().endswith(
        "listen tcp: address nohost: missing port in address; is nohost:4160 meant?\n"
    )


def test_nsqlookupd_reads_options_from_file(cluster):
    lookupd = cluster.daemon("nsqlookupd", [])
    path = lookupd.folder / "nsqlookupd.cfg"
    path.write_text(
        'log_prefix = "[mine] "\ninactive_producer_timeout = "300s"\ntombstone_lifetime = 45000\n'
    )
    lookupd.flags = [f"-config={path}"]

    assert lookupd.start().stop() == 0
    assert lookupd.logs().startswith("[mine] ")
