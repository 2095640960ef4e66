"""Sections 1 and 7: flags, exit codes, signals, the data path's lock, unix sockets, the lines of the log."""

import http.client
import re
import signal
import socket
import subprocess

import pytest

from bench.ports import free_port
from tests.support import beside
from tests.support.processes import listens, program
from tests.support.waiting import wait_until
from tests.support.wire import Wire

LINE = r"\[nsqd\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} "


def run(*flags, **more):
    """Run nsqd with flags with which it ends before it serves."""
    return subprocess.run(
        [*program("nsqd"), *flags],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        **more,
    )


def refused(cluster, *flags):
    """Start an nsqd that refuses to start; return the sentence of its only FATAL line."""
    daemon = cluster.daemon("nsqd", [f"--data-path={cluster.folder}", *flags]).spawn()
    assert daemon.wait() == 1
    fatal = [line for line in daemon.logs().splitlines() if " FATAL: " in line]
    assert len(fatal) == 1, daemon.logs()
    assert re.match(LINE, fatal[0])
    assert "Traceback" not in daemon.logs()
    return fatal[0].split(" FATAL: ")[1]


INSTANTIATE = "failed to instantiate nsqd - "


# --- the command line


def test_help_goes_to_stderr_and_exits_with_0():
    result = run("-help")
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr.startswith("Usage of nsqd:\n")


def test_unknown_flag_is_named_and_exits_with_2():
    result = run("--nope")
    assert result.returncode == 2
    hint = "; nsqd -help lists all flags\n" if beside.OURS else "\nUsage of nsqd:\n"
    assert result.stderr.startswith(f"flag provided but not defined: -nope{hint}")


@pytest.mark.parametrize(
    ("flag", "start"),
    [
        ("--msg-timeout=60", 'invalid value "60" for flag -msg-timeout: '),
        ("--mem-queue-size=x", 'invalid value "x" for flag -mem-queue-size: '),
        ("--deflate=maybe", 'invalid boolean value "maybe" for -deflate: '),
        ("--worker-id=5", 'invalid boolean value "5" for -worker-id: '),
        ("--log-level=foo", "invalid value \"foo\" for flag -log-level: invalid log level 'foo'"),
    ],
)
def test_bad_value_is_quoted_and_exits_with_2(flag, start):
    result = run(flag)
    assert result.returncode == 2
    assert result.stderr.startswith(start)
    if beside.OURS:  # the original adds its usage
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("flag", "sentence"),
    [
        ("--node-id=1024", "--node-id must be [0,1024)"),
        ("--max-deflate-level=10", "--max-deflate-level must be [1,9]"),
        ("--auth-http-request-method=POST", "--auth-http-request-method must be post or get"),
        ("--e2e-processing-latency-percentile=1.5", "invalid E2E processing latency percentile: 1.5"),
        ("--mem-queue-size=-1", "--mem-queue-size must be at least 0"),
        (
            "--statsd-address=nowhere",
            "failed to resolve --statsd-address (nowhere) - address nowhere: missing port",
        ),
        ("--statsd-address=127.0.0.1:1 --statsd-interval=1s", "--statsd-interval must be longer than 1s"),
    ],
)
def test_value_that_cannot_work_is_one_sentence_and_exits_with_1(tmp_path, flag, sentence):
    result = run(*flag.split(), f"--data-path={tmp_path}")
    assert result.returncode == 1
    (line,) = result.stderr.strip().splitlines()
    assert sentence in line


@pytest.mark.parametrize("value", ["0", "2", "1.25"])
def test_percentile_that_is_none_is_named_as_it_was_written(tmp_path, value):
    result = run(f"--e2e-processing-latency-percentile={value}", f"--data-path={tmp_path}")

    assert result.returncode == 1
    assert result.stderr.endswith(f" - invalid E2E processing latency percentile: {value}\n")


def test_options_of_disabled_feature_are_not_validated(cluster):
    nsqd = cluster.nsqd("--statsd-interval=1s", "--e2e-processing-latency-window-time=0s")

    assert nsqd.get("/config/statsd_interval") == 1_000_000_000


def test_config_file_gives_options_and_command_line_wins(cluster, tmp_path):
    config = tmp_path / "nsqd.cfg"
    config.write_text('mem_queue_size = 77\nid = 5\nmsg_timeout = "30s"\nunknown_key = 1\n', encoding="utf-8")
    nsqd = cluster.nsqd(f"--config={config}", "--msg-timeout=20s")
    assert nsqd.get("/config/mem_queue_size") == 77
    assert nsqd.get("/config/id") == 5
    assert nsqd.get("/config/msg_timeout") == 20_000_000_000
    assert " INFO: ID: 5\n" in nsqd.logs()


def test_missing_config_file_exits_with_1(tmp_path):
    result = run(f"--config={tmp_path}/none.cfg")
    assert result.returncode == 1
    assert f"failed to load config file {tmp_path}/none.cfg - " in result.stderr


# --- what keeps nsqd from starting


@pytest.mark.executed
def test_missing_data_path_is_one_line(cluster):
    sentence = refused(cluster, f"--data-path={cluster.folder}/none")
    assert (
        sentence
        == f"{INSTANTIATE}failed to lock data-path: open {cluster.folder}/none: no such file or directory"
    )


def test_file_as_data_path_is_one_line(cluster, tmp_path):
    (tmp_path / "file").touch()
    sentence = refused(cluster, f"--data-path={tmp_path}/file")
    assert sentence == f"{INSTANTIATE}failed to lock data-path: open {tmp_path}/file: not a directory"


def test_data_path_in_use_is_one_line_and_its_owner_goes_on(cluster):
    owner = cluster.nsqd()
    sentence = refused(cluster, f"--data-path={owner.folder}")
    assert sentence == (
        f"{INSTANTIATE}failed to lock data-path: cannot flock directory {owner.folder} - "
        "resource temporarily unavailable (possibly in use by another instance of nsqd)"
    )
    assert owner.request("GET", "/ping") == (200, b"OK")


@pytest.mark.executed
def test_successor_waits_for_process_that_still_has_data_path(cluster):
    owner = cluster.nsqd()
    successor = cluster.daemon("nsqd", [f"--data-path={owner.folder}"], ("tcp", "http")).spawn()
    wait_until(
        lambda: "waiting 10s for another process to release" in successor.logs(), "it says that it waits"
    )

    assert owner.stop() == 0

    wait_until(lambda: "TCP: listening on" in successor.logs(), "the successor serves")
    assert successor.stop() == 0


@pytest.mark.parametrize("kind", ["tcp", "http"])
def test_port_in_use_is_one_line(cluster, kind):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        sentence = refused(cluster, f"--{kind}-address={address}")
    assert sentence == (
        f"{INSTANTIATE}listen ({address}) failed - listen tcp {address}: bind: address already in use"
    )


@pytest.mark.parametrize("content", ["", '{"topics":[{"nam":"x"}]}', "\0\1\2"])
def test_metadata_that_cannot_be_read_is_one_line(cluster, content):
    (cluster.folder).mkdir()
    (cluster.folder / "nsqd.dat").write_text(content, encoding="utf-8")
    sentence = refused(cluster)
    assert "failed to load metadata - failed to parse metadata in " in sentence
    assert f"{cluster.folder}/nsqd.dat - " in sentence
    assert (cluster.folder / "nsqd.dat").read_text(
        encoding="utf-8"
    ) == content  # left for an operator to examine


# --- signals and the stop


@pytest.mark.executed
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_ends_it_in_order_with_exit_code_0(cluster, connect, number):
    nsqd = cluster.nsqd()
    consumer, idle = connect(nsqd), connect(nsqd)
    before_magic = [connect(nsqd, magic=b"")] if beside.OURS else []  # the original would wait for it
    consumer.subscribe("t", ready=1)
    idle.publish("t", b"m")
    consumer.message()
    keep_alive = http.client.HTTPConnection("127.0.0.1", nsqd.http_port, timeout=10)
    keep_alive.request("GET", "/ping")
    assert keep_alive.getresponse().read() == b"OK"
    nsqd.process.send_signal(number)
    nsqd.process.send_signal(number)  # further signals change nothing
    assert nsqd.wait() == 0
    for wire in (consumer, idle, *before_magic):
        assert wire.is_closed()
    keep_alive.close()
    said = [line.split(" INFO: ")[-1] for line in nsqd.logs().splitlines()]
    order = [
        f"TCP: closing {nsqd.tcp_address}",
        f"HTTP: closing {nsqd.http_address}",
        "NSQ: closing topics",
        "NSQ: stopping subsystems",
        "NSQ: bye",
    ]
    ended = [line for line in said if line in order]
    if not beside.OURS:  # the original's ports end in any order
        ended[:2] = sorted(ended[:2], reverse=True)
    assert ended == order
    assert "Traceback" not in nsqd.logs()


@pytest.mark.executed
def test_publishes_acknowledged_during_stop_survive(cluster, connect):
    nsqd = cluster.nsqd()
    wire = connect(nsqd)
    nsqd.process.send_signal(signal.SIGTERM)
    acknowledged = 0
    try:
        for _ in range(100_000):
            wire.publish("t", b"m")
            acknowledged += 1
    except (EOFError, OSError):
        pass  # closed by the stop
    assert nsqd.wait() == 0
    nsqd.start()
    topics = nsqd.get("/stats?format=json")["topics"]
    assert (topics[0]["depth"] if topics else 0) >= acknowledged


# --- addresses


def test_addresses_may_be_unix_sockets(cluster, tmp_path):
    tcp, web = str(tmp_path / "tcp.sock"), str(tmp_path / "http.sock")
    nsqd = cluster.daemon("nsqd", [f"--data-path={cluster.folder}"], listeners=())
    nsqd.flags += [f"--tcp-address={tcp}", f"--http-address={web}"]
    nsqd.spawn()
    wait_until(lambda: f"HTTP: listening on {web}" in nsqd.logs(), "it listens")

    with Wire(tcp) as wire:
        wire.subscribe("t", ready=1)
        wire.publish("t", b"m")
        assert wire.message().body == b"m"
        info = unix_get(web, "/info")
        assert (b'"http_port":-1' in info, b'"tcp_port":-1' in info) == (True, True)
        stats = unix_get(web, "/stats?format=json")
        assert b'"remote_address":"@"' in stats
        assert b'"client_id":"",' in stats
    assert nsqd.stop() == 0
    assert not (tmp_path / "tcp.sock").exists()
    assert not (tmp_path / "http.sock").exists()


@pytest.mark.parametrize("name", ["nsqd", "nsqlookupd", "nsqadmin"])
def test_http_is_served_on_tcp_and_on_unix_socket(cluster, tmp_path, name):
    web = str(tmp_path / "http.sock")
    flags = {"nsqd": [f"--data-path={cluster.folder}"], "nsqadmin": ["--lookupd-http-address=127.0.0.1:1"]}
    daemon = cluster.daemon(
        name,
        [f"--http-address={web}", *flags.get(name, [])],
        listeners=("http",) if name == "nsqadmin" else ("tcp", "http"),
    )
    daemon.start()

    assert daemon.request("GET", "/ping") == (200, b"OK")
    assert unix_get(web, "/ping").endswith(b"OK")
    if name == "nsqd":
        assert daemon.get("/info")["http_port"] == daemon.http_port
        assert set(daemon.get("/config/http_address")) == {web, daemon.http_address}
    assert daemon.stop() == 0
    assert not (tmp_path / "http.sock").exists()
    assert daemon.logs().count("HTTP: closing") == 2


def test_unix_socket_left_by_crash_does_not_keep_it_from_starting(cluster, tmp_path):
    # With the original it must be removed by hand.
    path = tmp_path / "tcp.sock"
    nsqd = cluster.daemon(
        "nsqd", [f"--data-path={cluster.folder}", f"--tcp-address={path}"], listeners=("http",)
    )
    nsqd.start()
    nsqd.kill()
    assert path.exists()
    nsqd.start()
    with Wire(str(path)) as wire:
        wire.publish("t", b"m")


def test_unix_socket_with_listener_is_in_use(cluster, tmp_path):
    path = tmp_path / "tcp.sock"
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(str(path))
        taken.listen()
        sentence = refused(cluster, f"--tcp-address={path}")
    assert sentence.endswith(f"listen unix {path}: bind: address already in use")


def test_http_can_be_switched_off(cluster, connect):
    nsqd = cluster.daemon("nsqd", [f"--data-path={cluster.folder}", "--http-address="], listeners=("tcp",))
    nsqd.start()
    connect(nsqd).publish("t", b"m")
    assert "HTTP: listening" not in nsqd.logs()
    assert nsqd.stop() == 0


def test_broadcast_address_and_ports_can_be_told(cluster):
    lookupd = cluster.nsqlookupd()
    port = free_port()
    nsqd = cluster.nsqd(
        "--broadcast-address=nsqd-0.example", f"--broadcast-tcp-port={port}", "--broadcast-http-port=4"
    )
    assert nsqd.get("/info")["broadcast_address"] == "nsqd-0.example"
    assert nsqd.get("/info")["tcp_port"] == nsqd.tcp_port  # the real port
    nsqd.post("/topic/create?topic=t")
    wait_until(lambda: lookupd.get("/nodes")["producers"], "it is registered")
    (producer,) = lookupd.get("/nodes")["producers"]
    assert (producer["broadcast_address"], producer["tcp_port"], producer["http_port"]) == (
        "nsqd-0.example",
        port,
        4,
    )


# --- the log


def test_log_has_lines_other_tools_look_for(cluster, connect):
    nsqd = cluster.nsqd()
    wire = connect(nsqd)
    wire.subscribe("t", "ch")
    nsqd.post("/channel/delete?topic=t&channel=ch")
    assert wire.is_closed()
    nsqd.post("/topic/delete?topic=t")
    connect(nsqd).refusal(b"BAD\n")
    assert nsqd.stop() == 0
    lines = nsqd.logs().splitlines()
    assert all(re.match(LINE + "(INFO|ERROR): ", line) for line in lines), nsqd.logs()
    said = [line.split(": ", 1)[1] for line in lines]
    for expected in (
        f"TCP: listening on {nsqd.tcp_address}",
        f"HTTP: listening on {nsqd.http_address}",
        f"NSQ: persisting topic/channel metadata to {nsqd.folder}/nsqd.dat",
        f"TCP: new client(127.0.0.1:{wire.port})",
        "TOPIC(t): created",
        "TOPIC(t): new channel(ch)",
        "TOPIC(t): deleting channel ch",
        "TOPIC(t): deleting",
    ):
        assert expected in said
    assert [line for line in said if line.endswith("E_INVALID invalid command BAD")]


def test_prefix_and_level_of_log_can_be_told(cluster, connect):
    quiet = cluster.daemon(
        "nsqd", [f"--data-path={cluster.folder}", "--log-prefix=mine:", "--log-level=ERROR"], ()
    )
    quiet.ports = {"tcp": free_port(), "http": free_port()}
    quiet.spawn()
    wait_until(lambda: listens(quiet.http_port), "it answers")
    connect(quiet).refusal(b"BAD\n")
    assert quiet.stop() == 0
    (line,) = quiet.logs().splitlines()
    assert re.match(
        r"mine:\d{4}/\d\d/\d\d \S+ ERROR: \[127\.0\.0\.1:\d+\] - E_INVALID invalid command BAD", line
    )


def unix_get(path, target):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(path)
        client.sendall(b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % target.encode())
        pieces = []
        while piece := client.recv(65536):
            pieces.append(piece)
        return b"".join(pieces)
