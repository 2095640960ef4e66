"""Sections 2.7 and 2.9: TLS on the TCP port, on the HTTPS port, and required."""

import http.client
import json
import socket
import ssl
import time

import pytest

from tests.support.auth_server import AuthServer
from tests.support.certificates import Authority
from tests.support.processes import Cluster
from tests.support.upgrades import start_tls, upgrade
from tests.support.waiting import wait_until
from tests.support.wire import fin, identify, mpub, pub, sized

LISTENERS = ("tcp", "http", "https")
WISH = identify(feature_negotiation=True, tls_v1=True)
SERVER = ("--tls-cert={cert}", "--tls-key={key}")
CERTIFIED = (*SERVER, "--tls-client-auth-policy=require-verify")
NO_CERTIFICATE = "cannot require TLS client connections without TLS key and cert"
REQUIRED = b"E_INVALID cannot %b in current state (TLS required)"


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def stranger(tmp_path_factory):
    """An untrusted authority."""
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="session")
def shared_nsqd(tmp_path_factory, authority):
    """In this file the shared nsqd has a certificate."""
    cluster = Cluster(tmp_path_factory.mktemp("nsqd") / "tls")
    yield cluster.nsqd(*authority.flags, listeners=LISTENERS)
    cluster.close()


@pytest.fixture
def secure(cluster, authority):
    """A function that starts the test's own nsqd, with a certificate and these flags."""

    def start(*flags):
        return cluster.nsqd(*authority.flags, *flags, listeners=LISTENERS)

    return start


def https(nsqd, context, method, path, body=None):
    connection = http.client.HTTPSConnection("127.0.0.1", nsqd.ports["https"], timeout=10, context=context)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


# --- negotiated


@pytest.mark.parametrize("compression", ["", "deflate", "snappy"])
def test_messages_are_published_and_consumed_within_tls(connect, authority, topic, compression):
    producer, consumer = connect(), connect()
    for wire in (producer, consumer):
        upgrade(wire, tls=authority.client(), compression=compression)
    bodies = [b"a", b"b" * 1_000_000, b"\n" * 10]

    consumer.subscribe(topic, ready=10)
    producer.publish(topic, bodies[0])
    assert producer.ask(mpub(topic, *bodies[1:])) == b"OK"
    messages = consumer.messages(3)

    assert [message.body for message in messages] == bodies
    consumer.send(*(fin(message) for message in messages))
    consumer.quiet()


def test_publishes_before_tls_are_synced_before_it_begins(connect, secure, authority):
    nsqd = secure("--sync-every=1")
    for _ in range(20):
        wire = connect(nsqd)
        wire.send(pub("t", b"m"))
        wire.send(WISH)
        wire.ok()
        assert wire.response().startswith(b"{")
        start_tls(wire, authority.client())
        wire.publish("t", b"m")
    assert "Traceback" not in nsqd.logs()


def test_goodbye_is_answered_so_that_nobody_waits_for_it(connect, authority, topic):
    wire = connect()
    upgrade(wire, tls=authority.client())
    wire.publish(topic, b"last words")

    below = wire.socket.unwrap()  # blocks until nsqd has also said goodbye

    assert below.recv(1) == b""


def test_second_identify_never_leaves_tls(connect, authority, topic):
    wire = connect()
    upgrade(wire, tls=authority.client())
    granted = wire.identify(tls_v1=True, output_buffer_size=64, msg_timeout=5000)
    assert (granted["tls_v1"], granted["msg_timeout"]) == (False, 5000)
    wire.publish(topic, b"still within tls")


def test_statistics_and_log_name_negotiated_features(nsqd, connect, authority, topic, stats):
    wire = connect()
    upgrade(wire, tls=authority.client())
    wire.subscribe(topic)

    (client,) = stats(topic, "ch")["clients"]
    told = {key: value for key, value in client.items() if key.startswith("tls")}
    assert told == {
        "tls": True,
        "tls_cipher_suite": "TLS_AES_256_GCM_SHA384",
        "tls_version": "TLS1.3",
        "tls_negotiated_protocol": "",
        "tls_negotiated_protocol_is_mutual": True,
    }
    assert f"PROTOCOL(V2): [127.0.0.1:{wire.port}] upgrading connection to TLS\n" in nsqd.logs()


@pytest.mark.parametrize(
    ("cipher", "shown"),
    [
        ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ],
)
def test_cipher_suites_have_their_official_names(connect, authority, topic, stats, cipher, shown):
    context = authority.client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(cipher)
    wire = connect()
    upgrade(wire, tls=context)
    wire.subscribe(topic)

    (client,) = stats(topic, "ch")["clients"]
    assert (client["tls_version"], client["tls_cipher_suite"]) == ("TLS1.2", shown)


# --- handshakes that fail


def test_non_handshake_gets_cleartext_error(wire):
    wire.ask(WISH)
    wire.send(b"NOP\nNOP\n")
    assert (
        wire.error()
        == b"E_IDENTIFY_FAILED IDENTIFY failed tls: first record does not look like a TLS handshake"
    )
    assert wire.is_closed()


def test_handshake_that_is_not_begun_is_waited_for_five_seconds(wire, nsqd):
    began = time.monotonic()
    wire.ask(WISH)
    reason = f"read tcp 127.0.0.1:{nsqd.tcp_port}->127.0.0.1:{wire.port}: i/o timeout"
    assert wire.error() == f"E_IDENTIFY_FAILED IDENTIFY failed {reason}".encode()
    assert wire.is_closed()
    assert time.monotonic() - began > 4.5  # and less than the time-out of the socket


def test_client_that_does_not_believe_certificate_leaves(nsqd, connect, stranger):
    wire = connect()
    wire.ask(WISH)
    with pytest.raises(ssl.SSLCertVerificationError):
        start_tls(wire, stranger.client())
    wait_until(lambda: "unknown ca" in nsqd.logs(), "the reason is logged")


def test_versions_below_least_are_refused(connect, authority, secure):
    nsqd = secure("--tls-min-version=tls1.3")
    context = authority.client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    wire = connect(nsqd)
    wire.ask(WISH)
    with pytest.raises(ssl.SSLError):
        start_tls(wire, context)
    assert nsqd.get("/config/tls_min_version") == 772


def test_least_version_is_1_2(nsqd):
    assert nsqd.get("/config/tls_min_version") == 771


@pytest.mark.parametrize(
    ("least", "version"), [("tls1.0", ssl.TLSVersion.TLSv1), ("tls1.1", ssl.TLSVersion.TLSv1_1)]
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_version_is_spoken_when_it_is_allowed(connect, authority, secure, topic, least, version):
    nsqd = secure(f"--tls-min-version={least}")
    context = authority.client()
    # The client also has to lower its security level.
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    wire = connect(nsqd)
    upgrade(wire, tls=context)

    wire.publish(topic, b"m")
    assert https(nsqd, context, "GET", "/ping") == (200, b"OK")


def test_certificate_that_was_renewed_is_shown_from_then_on(connect, secure, authority, tmp_path):
    folder = tmp_path / "secret"
    serving = Authority(folder)
    nsqd = secure(f"--tls-cert={serving.certificate}", f"--tls-key={serving.key}")
    before = connect(nsqd)
    upgrade(before, tls=serving.client())

    # The files are written one after the other, so for a moment certificate and key do not match.
    renewed = Authority(tmp_path / "renewed")
    serving.certificate.write_bytes(renewed.certificate.read_bytes())
    wait_until(lambda: "TLS: cannot read again: " in nsqd.logs(), "half a renewal is noticed", 20)
    assert https(nsqd, serving.client(), "GET", "/ping") == (200, b"OK")
    serving.key.write_bytes(renewed.key.read_bytes())
    wait_until(lambda: f"TLS: read again: {serving.certificate}" in nsqd.logs(), "it is read again", 20)

    after = connect(nsqd)
    upgrade(after, tls=renewed.client())
    assert https(nsqd, renewed.client(), "GET", "/ping") == (200, b"OK")
    before.publish("t", b"who is connected stays so")


# --- certificates of clients


@pytest.mark.parametrize("policy", ["require", "require-verify"])
def test_client_needs_certificate_of_authority(connect, secure, authority, stranger, policy):
    nsqd = secure(f"--tls-client-auth-policy={policy}", f"--tls-root-ca-file={authority.file}")
    known = connect(nsqd)
    upgrade(known, tls=authority.client(name="known"))
    known.publish("t", b"m")

    for context in (authority.client(), authority.client(name="unknown", issuer=stranger)):
        wire = connect(nsqd)
        wire.ask(WISH)
        # In TLS 1.3 the client's handshake ends before the server has seen its certificate.
        with pytest.raises((ssl.SSLError, OSError, EOFError)):
            start_tls(wire, context)
    wait_until(lambda: nsqd.logs().count("E_IDENTIFY_FAILED IDENTIFY failed tls: ") == 2, "both are logged")

    assert https(nsqd, authority.client(name="known"), "GET", "/ping") == (200, b"OK")
    with pytest.raises((ssl.SSLError, OSError)):
        https(nsqd, authority.client(), "GET", "/ping")


def test_asking_for_certificates_requires_tls(connect, secure, authority):
    nsqd = secure("--tls-client-auth-policy=require-verify", f"--tls-root-ca-file={authority.file}")
    assert connect(nsqd).refusal(pub("t", b"m")) == REQUIRED % b"PUB"
    assert nsqd.request("GET", "/ping")[0] == 403


# --- HTTPS


def test_whole_api_is_served_over_https(nsqd, authority, topic, connect):
    assert https(nsqd, authority.client(), "GET", "/ping") == (200, b"OK")
    assert https(nsqd, authority.client(), "POST", f"/pub?topic={topic}", b"m") == (200, b"OK")
    status, body = https(nsqd, authority.client(), "GET", "/info")
    assert (status, json.loads(body)["http_port"]) == (200, nsqd.http_port)
    wire = connect()
    wire.subscribe(topic, ready=1)
    assert wire.message().body == b"m"
    assert nsqd.request("GET", "/ping") == (200, b"OK")


def test_https_port_drops_plain_requests(nsqd, authority):
    with socket.create_connection(("127.0.0.1", nsqd.ports["https"]), timeout=10) as plain:
        plain.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" not in plain.recv(100)
    assert https(nsqd, authority.client(), "GET", "/ping") == (200, b"OK")


def test_empty_https_address_listens_nowhere(cluster, authority):
    nsqd = cluster.nsqd(*authority.flags, "--https-address=")
    assert "HTTPS: listening" not in nsqd.logs()


# --- required


@pytest.mark.parametrize("command", [b"PUB t\n", b"SUB t c\n", b"NOP\n", b"NONSENSE\n", b"AUTH\n", b"\n"])
@pytest.mark.parametrize("how", ["true", "tcp-https"])
def test_commands_need_tls_where_it_is_required(connect, tls_required, command, how):
    nsqd = tls_required(how)
    refused = REQUIRED % command.partition(b" ")[0].strip()
    assert connect(nsqd).refusal(command) == refused
    wire = connect(nsqd)
    assert wire.identify()["tls_v1"] is False
    assert wire.refusal(command) == refused


@pytest.fixture(scope="session")
def tls_required(tmp_path_factory, authority):
    """An nsqd for each way of requiring TLS."""
    cluster = Cluster(tmp_path_factory.mktemp("nsqd") / "required")
    started = {}

    def start(how):
        if how not in started:
            started[how] = cluster.nsqd(*authority.flags, f"--tls-required={how}", listeners=LISTENERS)
        return started[how]

    yield start
    cluster.close()


@pytest.mark.parametrize("how", ["true", "tcp-https"])
def test_commands_are_allowed_within_tls(connect, authority, tls_required, how):
    wire = connect(tls_required(how))
    upgrade(wire, tls=authority.client())
    wire.publish("t", b"m")
    wire.subscribe("t", ready=1)
    assert wire.message().body == b"m"


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/ping"), ("POST", "/pub?topic=t"), ("GET", "/nowhere"), ("PUT", "/stats")]
)
def test_http_names_https_port_where_tls_is_required(tls_required, authority, method, path):
    nsqd = tls_required("true")
    status, body = nsqd.request(method, path)
    assert (status, body) == (403, b'{"message": "TLS_REQUIRED", "https_port": %d}' % nsqd.ports["https"])
    assert https(nsqd, authority.client(), "GET", "/config/tls_required") == (200, b"2")


def test_tcp_https_leaves_http_open(tls_required):
    nsqd = tls_required("tcp-https")
    assert nsqd.request("GET", "/ping") == (200, b"OK")
    assert nsqd.get("/config/tls_required") == 1


# --- the start


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--tls-required"], NO_CERTIFICATE),
        (["--tls-required=tcp-https"], NO_CERTIFICATE),
        (["--tls-client-auth-policy=require"], NO_CERTIFICATE),
        (
            [*SERVER, "--tls-client-auth-policy=require"],
            "--tls-client-auth-policy=require needs --tls-root-ca-file: certificates of clients are verified",
        ),
        (["--tls-root-ca-file=/x"], "failed to build client TLS config - open /x: no such file"),
        (
            ["--tls-root-ca-file={key}"],
            "failed to build client TLS config - failed to append certificate to pool",
        ),
        (
            [*SERVER, "--tls-root-ca-file=/x"],
            "failed to build client TLS config - open /x: no such file",
        ),
        (["--tls-client-auth-policy=nonsense"], "--tls-client-auth-policy must be require or require-verify"),
        (
            ["--tls-cert=/no.pem", "--tls-key=/no.key"],
            "failed to build TLS config - open /no.pem: no such file",
        ),
        (["--tls-cert={cert}"], "failed to build TLS config - open : no such file or directory"),
        (
            ["--tls-cert={ca}", "--tls-key={key}"],
            (
                "failed to build TLS config - "
                "tls: the private key in {key} does not match the certificate in {ca}"
            ),
        ),
        (
            ["--tls-cert={key}", "--tls-key={key}"],
            "failed to build TLS config - tls: {key} contains no certificate in PEM",
        ),
        ([*CERTIFIED, "--tls-root-ca-file=/x"], "failed to build TLS config - open /x: no such file"),
        (
            [*CERTIFIED, "--tls-root-ca-file={key}"],
            "failed to build TLS config - failed to append certificate to pool",
        ),
    ],
)
def test_invalid_settings_exit_with_1_and_one_sentence(cluster, authority, flags, sentence):
    files = {"cert": authority.certificate, "key": authority.key, "ca": authority.file}
    nsqd = cluster.daemon("nsqd", [flag.format(**files) for flag in flags], LISTENERS)
    nsqd.flags.append(f"--data-path={nsqd.folder}")
    assert nsqd.spawn().wait() == 1
    (line,) = [line for line in nsqd.logs().splitlines() if "FATAL" in line]
    assert f"FATAL: failed to instantiate nsqd - {sentence.format(**files)}" in line
    assert "Traceback" not in nsqd.logs()


@pytest.mark.parametrize(
    ("flag", "start"),
    [
        (
            "--tls-min-version=ssl3.0",
            'invalid value "ssl3.0" for flag -tls-min-version: unknown tlsVersionOption',
        ),
        ("--tls-required=maybe", 'invalid boolean value "maybe" for -tls-required: '),
    ],
)
def test_bad_value_is_quoted_and_exits_with_2(cluster, flag, start):
    nsqd = cluster.daemon("nsqd", [flag])
    assert nsqd.spawn().wait() == 2
    assert nsqd.logs().startswith(start)


def test_auth_server_is_told_of_tls_and_of_name_in_certificate(connect, secure, authority):
    with AuthServer() as servers:
        nsqd = secure(
            f"--auth-http-address={servers.address}",
            "--tls-client-auth-policy=require-verify",
            f"--tls-root-ca-file={authority.file}",
        )
        wire = connect(nsqd)
        upgrade(wire, tls=authority.client(name="anna"), compression="snappy")
        wire.ask(b"AUTH\n" + sized(b"s"))
    (asked,) = servers.asked
    assert asked.target == "/auth?common_name=anna&remote_ip=127.0.0.1&secret=s&tls=true"
