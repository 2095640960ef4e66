"""A cluster that requires HTTPS and the AUTH secret, read as Spark reads it."""

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from nsqclient.wire.node_error import NodeError
from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.http import open_node
from pyspark_nsq.source.options import SourceOptions
from pyspark_nsq.source.stream_reader import NsqStreamReader
from tests.support.auth_server import AuthServer, granted
from tests.support.certificates import Authority

LISTENERS = ("tcp", "http", "https")
ALL = ReadAllAvailable()


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "authority")


@pytest.fixture
def nsqd(cluster, authority):
    with AuthServer(by_secret={"let me in": granted(), "stranger": {}}) as server:
        flags = ["--tls-required=true", f"--auth-http-address={server.address}", "--http-auth"]
        yield cluster.nsqd(*authority.flags, *flags, listeners=LISTENERS)


@pytest.fixture
def options(nsqd, authority, topic, tmp_path):
    """Options with which the cluster lets a query in; the topic has one message."""
    secret = tmp_path / "secret"
    secret.write_text("let me in\n")
    connection = http.client.HTTPSConnection(
        "127.0.0.1", nsqd.ports["https"], timeout=10, context=authority.client()
    )
    connection.request("POST", f"/pub?topic={topic}", b"kept", {"Authorization": "Bearer let me in"})
    assert connection.getresponse().read() == b"OK"
    connection.close()
    return {
        "nsqdHttpAddresses": nsqd.http_address,
        "topic": topic,
        "channel": "archive",
        "retryTimeout": "0",
        "authSecretFile": str(secret),
        "tlsRootCaFile": str(authority.file),
    }


def read(options):
    """The bodies of one batch, which is then acknowledged."""
    reader = NsqStreamReader(SourceOptions.parse(options))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    found = [
        body
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for body in batch.column("body").to_pylist()
    ]
    reader.commit(end)
    return found


def test_with_trust_and_secret_it_is_read_and_acknowledged(options):
    assert read(options) == [b"kept"]
    assert read(options) == []


def test_https_address_can_be_given(options, nsqd):
    assert read(options | {"nsqdHttpAddresses": f"https://127.0.0.1:{nsqd.ports['https']}"}) == [b"kept"]


def test_authority_that_is_not_trusted_is_named(options, tmp_path):
    stranger = Authority(tmp_path / "stranger")
    # The request is not repeated, because the next answer would be the same.
    with pytest.raises(SourceError, match=r"certificate that is not trusted here \(option tlsRootCaFile\)"):
        read(options | {"tlsRootCaFile": str(stranger.file), "retryTimeout": "3600"})


def test_file_that_does_not_exist_is_named(options):
    with pytest.raises(SourceError, match="the TLS options cannot be used: tls_root_ca_file '/nowhere'"):
        read(options | {"tlsRootCaFile": "/nowhere"})


def test_missing_secret_is_named(options):
    with pytest.raises(SourceError, match=r"wants the AUTH secret \(option authSecretFile\)"):
        read(options | {"authSecretFile": ""})


def test_secret_that_is_not_valid_is_named(options, tmp_path):
    (tmp_path / "other").write_text("stranger")
    with pytest.raises(SourceError, match="could not have the AUTH secret checked, or it is not valid"):
        read(options | {"authSecretFile": str(tmp_path / "other")})


# --- to whom the secret is sent


@pytest.fixture
def plain(request):
    """A plain HTTP server that gives the test's answer, and a list of the secrets in its requests."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            shown = self.headers.get("Authorization")
            seen.append(shown)
            status, answer = (200, {}) if shown else request.param
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}", seen
    server.shutdown()
    thread.join()
    server.server_close()


ASKS, NAMES_HTTPS = (401, {"message": "AUTH_REQUIRED"}), (403, {"message": "TLS_REQUIRED", "https_port": 1})
SAYS_NOTHING = (200, {})


def ask(address, tmp_path, **changes):
    (tmp_path / "secret").write_text("let me in")
    given = {"nsqdHttpAddresses": address, "topic": "t", "authSecretFile": str(tmp_path / "secret")}
    with open_node(address, SourceOptions.parse({**given, **changes}), 0) as node:
        for _ in range(2):
            node.get("/log/bounds", [("topic", "t")])


@pytest.mark.parametrize("plain", [NAMES_HTTPS], indirect=True)
def test_node_that_insists_on_https_is_not_shown_secret_in_plain_text(plain, tmp_path):
    address, seen = plain
    with pytest.raises(NodeError, match="connection refused"):
        ask(address, tmp_path)

    assert seen == [None]


@pytest.mark.parametrize("plain", [SAYS_NOTHING], indirect=True)
def test_node_that_does_not_ask_is_not_shown_secret(plain, tmp_path):
    address, seen = plain
    ask(address, tmp_path)

    assert seen == [None, None]


@pytest.mark.parametrize("plain", [ASKS], indirect=True)
def test_node_that_asks_is_shown_secret_from_then_on(plain, tmp_path):
    address, seen = plain
    ask(address, tmp_path)

    assert seen == [None, "Bearer let me in", "Bearer let me in"]


@pytest.mark.parametrize("plain", [ASKS], indirect=True)
def test_secret_goes_in_cleartext_to_named_node_only_when_allowed(plain, tmp_path):
    address, seen = plain
    named = {"nsqdHttpAddresses": "", "lookupdHttpAddresses": "127.0.0.1:1"}
    with pytest.raises(SourceError, match="named by nsqlookupd, where anybody may register"):
        ask(address, tmp_path, **named)
    assert seen == [None]

    ask(address, tmp_path, **named, authAllowCleartext="true")

    assert seen[1:] == [None, "Bearer let me in", "Bearer let me in"]


@pytest.mark.parametrize("plain", [ASKS], indirect=True)
def test_with_tls_option_nobody_is_shown_secret_in_plain_text(plain, tmp_path):
    address, seen = plain
    with pytest.raises(
        SourceError, match="asks for the AUTH secret over plain HTTP, and the TLS options say"
    ):
        ask(address, tmp_path, tlsInsecureSkipVerify="true")

    assert seen == [None]


@pytest.mark.parametrize(
    ("content", "sentence"), [("", "is empty or has several lines"), (None, "cannot be read: no such file")]
)
@pytest.mark.parametrize("plain", [ASKS], indirect=True)
def test_secret_that_cannot_be_read_is_named(plain, tmp_path, content, sentence):
    path = tmp_path / "other"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SourceError, match=f"option authSecretFile: {path} {sentence}"):
        ask(plain[0], tmp_path, authSecretFile=str(path))
