"""nsqlookupd and nsqadmin over TLS: the flags are the same as nsqd's, and the answers do not change."""

import http.client
import json
import ssl

import pytest

from nsqcore.cluster.http import ClusterHttp
from tests.support.certificates import Authority
from tests.support.http_doors import Doors
from tests.support.waiting import wait_until

DAEMONS = ("nsqlookupd", "nsqadmin")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def secure(cluster, authority):
    """A function that starts a daemon with a certificate."""

    def start(program, *flags):
        listeners = ("tcp", "http", "https") if program == "nsqlookupd" else ("http", "https")
        more = ["--broadcast-address=127.0.0.1"]
        if program == "nsqadmin":
            more = ["--nsqd-http-address=127.0.0.1:1"]
        return cluster.daemon(program, [*authority.flags, *more, *flags], listeners).start()

    return start


def https(daemon, context, path):
    connection = http.client.HTTPSConnection("127.0.0.1", daemon.ports["https"], timeout=10, context=context)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize("program", DAEMONS)
def test_daemon_with_certificate_serves_both_ports(secure, authority, program):
    daemon = secure(program)

    assert https(daemon, authority.client(), "/ping") == (200, b"OK")
    assert daemon.request("GET", "/ping") == (200, b"OK")
    assert daemon.stop() == 0


@pytest.mark.parametrize("program", DAEMONS)
def test_plain_requests_get_https_port_where_tls_is_required(secure, authority, program):
    daemon = secure(program, "--tls-required")

    status, body = daemon.request("GET", "/ping")
    assert status == 403
    assert json.loads(body) == {"message": "TLS_REQUIRED", "https_port": daemon.ports["https"]}
    assert https(daemon, authority.client(), "/ping") == (200, b"OK")


@pytest.mark.parametrize("program", DAEMONS)
@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--tls-required"], "cannot require TLS client connections without TLS key and cert"),
        (["--tls-cert={cert}"], "failed to build TLS config - open : no such file or directory"),
        (["--tls-cert=/x", "--tls-key={key}"], "failed to build TLS config - open /x: no such file"),
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
    ],
)
def test_invalid_settings_print_one_sentence(cluster, authority, program, flags, sentence):
    files = {"cert": authority.certificate, "key": authority.key, "ca": authority.file}
    more = ["--nsqd-http-address=127.0.0.1:1"] if program == "nsqadmin" else []
    listeners = ("http",) if program == "nsqadmin" else ("tcp", "http")
    daemon = cluster.daemon(program, [*more, *(flag.format(**files) for flag in flags)], listeners)

    assert daemon.spawn().wait() == 1
    assert f"FATAL: failed to instantiate {program} - {sentence.format(**files)}" in daemon.logs()
    assert "Traceback" not in daemon.logs()


@pytest.mark.parametrize("program", DAEMONS)
def test_renewed_certificate_is_read_again(secure, authority, tmp_path, program):
    own = Authority(tmp_path / "own")
    daemon = secure(program, f"--tls-cert={own.certificate}", f"--tls-key={own.key}")
    assert https(daemon, own.client(), "/ping")[0] == 200

    renewed = Authority(tmp_path / "renewed")
    own.key.write_bytes(renewed.key.read_bytes())
    own.certificate.write_bytes(renewed.certificate.read_bytes())
    wait_until(lambda: "TLS: read again: " in daemon.logs(), "it is read again")

    assert https(daemon, renewed.client(), "/ping")[0] == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        https(daemon, authority.client(), "/ping")


def test_clients_of_nsqlookupd_that_requires_tls_are_answered(secure, cluster, authority):
    """An nsqd asks it for channels, another nsqlookupd for nodes, nsqadmin for everything."""
    lookupd = secure("nsqlookupd", "--tls-required", "--reconnect-interval=0s")
    trust = f"--tls-root-ca-file={authority.file}"
    nsqd = cluster.nsqd(trust, lookupds=[lookupd])
    wait_until(lambda: https(lookupd, authority.client(), "/ready")[0] == 200, "it is ready")
    nsqd.create("t", "c")
    wait_until(
        lambda: b'"c"' in https(lookupd, authority.client(), "/channels?topic=t")[1], "c is registered"
    )

    other = cluster.nsqd(trust, lookupds=[lookupd])
    # An nsqd asks only the nsqlookupds that it has already spoken to.
    wait_until(
        lambda: https(lookupd, authority.client(), "/nodes")[1].count(b"broadcast_address") == 2,
        "both are known",
    )
    other.post("/pub?topic=t", b"x")
    wait_until(
        lambda: other.get("/stats?format=json&topic=t")["topics"][0]["channels"], "the channel is made there"
    )

    address = f"--lookupd-http-address={lookupd.http_address}"
    second = cluster.nsqlookupd(address, trust, "--reconnect-interval=1h", "--ready-timeout=1h")
    wait_until(
        lambda: b"waiting for 2 of 2 nsqd" in second.request("GET", "/ready")[1], "it knows whom to wait for"
    )
    admin = cluster.nsqadmin(address, f"--http-client-tls-root-ca-file={authority.file}")
    assert b'"t"' in admin.request("GET", "/api/topics")[1]


def test_nsqadmin_trusts_authority_that_is_added_to_its_file_without_restart(
    secure, cluster, authority, tmp_path
):
    lookupd = secure("nsqlookupd", "--tls-required", "--reconnect-interval=0s")
    cluster.nsqd(f"--tls-root-ca-file={authority.file}", lookupds=[lookupd]).post("/topic/create?topic=t")
    file = tmp_path / "authorities.pem"
    file.write_bytes(Authority(tmp_path / "other").file.read_bytes())
    admin = cluster.nsqadmin(
        f"--lookupd-http-address={lookupd.http_address}", f"--http-client-tls-root-ca-file={file}"
    )
    assert b'"t"' not in admin.request("GET", "/api/topics")[1]

    file.write_bytes(file.read_bytes() + authority.file.read_bytes())

    wait_until(lambda: b'"t"' in admin.request("GET", "/api/topics")[1], "it is trusted")


async def test_requests_over_https_trust_system_without_authorities_of_their_own(tmp_path, monkeypatch):
    authority = Authority(tmp_path / "tls")
    tls = {"tls_cert": str(authority.certificate), "tls_key": str(authority.key)}
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    async with (
        Doors(tmp_path / "data", https_address="127.0.0.1:0", **tls) as doors,
        ClusterHttp() as http,
    ):
        assert await http.fetch(f"https://127.0.0.1:{doors.nsqd.https.port}", "/ping", {}) == b"OK"


@pytest.mark.parametrize("program", DAEMONS)
def test_failed_handshake_has_alert_and_line_with_its_reason(secure, authority, program):
    daemon = secure(program, "--tls-min-version=tls1.3")
    old = authority.client()
    old.maximum_version = ssl.TLSVersion.TLSv1_2

    with pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
        https(daemon, old, "/ping")

    wait_until(lambda: "handshake failed - tls: unsupported protocol" in daemon.logs(), "it is in the log")


def test_client_without_certificate_gets_alert(cluster, authority):
    policy = [*authority.flags, "--tls-client-auth-policy=require-verify"]
    daemon = cluster.daemon("nsqd", policy, ("tcp", "http", "https")).start()

    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
        https(daemon, authority.client(), "/ping")

    wait_until(
        lambda: "handshake failed - tls: peer did not return a certificate" in daemon.logs(),
        "it is in the log",
    )


def test_client_that_refuses_certificate_is_in_log(secure):
    daemon = secure("nsqlookupd")

    with pytest.raises(ssl.SSLCertVerificationError):
        https(daemon, ssl.create_default_context(), "/ping")

    wait_until(lambda: "handshake failed" in daemon.logs(), "it is in the log")
    assert any(word in daemon.logs() for word in ("unknown ca", "one that refuses the certificate"))


@pytest.mark.parametrize("program", DAEMONS)
def test_plain_http_at_https_port_gets_sentence(secure, program):
    daemon = secure(program)
    connection = http.client.HTTPConnection("127.0.0.1", daemon.ports["https"], timeout=10)
    connection.request("GET", "/ping")
    answer = connection.getresponse()

    assert (answer.status, answer.read()[:28]) == (400, b"This port speaks HTTPS: the ")
    connection.close()
    wait_until(lambda: "handshake failed - plain HTTP" in daemon.logs(), "it is in the log")
