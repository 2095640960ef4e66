"""A cluster that requires HTTPS and the AUTH secret, read as Spark reads it."""

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from nsqclient.wire.node_error import NodeError
from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.http import NodeConnection
from pyspark_nsq.source.options import SourceOptions
from pyspark_nsq.source.stream_reader import NsqStreamReader
from tests.pipelines.streams import ALL, bodies_of
from tests.support.auth_server import AuthServer, granted
from tests.support.certificates import Authority
from tests.support.processes import Cluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("secured")


@pytest.fixture(scope="module")
def authority(folder):
    return Authority(folder / "authority")


@pytest.fixture(scope="module")
def nsqd(folder, authority):
    cluster = Cluster(folder / "cluster")
    with AuthServer(by_secret={"let me in": granted(), "stranger": {}}) as server:
        flags = ["--tls-required=true", f"--auth-http-address={server.address}", "--http-auth"]
        yield cluster.nsqd(*authority.flags, *flags, listeners=("tcp", "http", "https"))
    cluster.close()


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
    found = bodies_of(reader, start, end)
    reader.commit(end)
    return found


@pytest.mark.parametrize("scheme", ["", "https://"])
def test_topic_is_read_and_acknowledged_with_trust_and_secret(options, nsqd, scheme):
    if scheme:
        options["nsqdHttpAddresses"] = f"{scheme}127.0.0.1:{nsqd.ports['https']}"
    assert read(options) == [b"kept"]
    assert read(options) == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        # The request is not repeated, because the next answer would be the same.
        (
            {"tlsRootCaFile": "stranger", "retryTimeout": "3600"},
            "has a certificate that is not trusted here (option tlsRootCaFile)",
        ),
        ({"tlsRootCaFile": "/nowhere"}, "the TLS options cannot be used: tls_root_ca_file '/nowhere'"),
        ({"authSecretFile": ""}, "wants the AUTH secret (option authSecretFile)"),
        ({"authSecretFile": "other"}, "could not have the AUTH secret checked, or it is not valid"),
    ],
)
def test_missing_trust_or_secret_is_named(options, tmp_path, changes, sentence):
    (tmp_path / "other").write_text("stranger")
    files = {
        "stranger": lambda: str(Authority(tmp_path / "stranger").file),
        "other": lambda: f"{tmp_path}/other",
    }
    with pytest.raises(SourceError) as refused:
        read(
            options | {name: files.get(value, lambda value=value: value)() for name, value in changes.items()}
        )
    assert sentence in refused.value.sentence


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
FROM_LOOKUPD = {"nsqdHttpAddresses": "", "lookupdHttpAddresses": "127.0.0.1:1"}
SHOWN = [None, "Bearer let me in", "Bearer let me in"]


def ask(address, tmp_path, **changes):
    (tmp_path / "secret").write_text("let me in")
    given = {"nsqdHttpAddresses": address, "topic": "t", "authSecretFile": str(tmp_path / "secret")}
    with NodeConnection(address, SourceOptions.parse({**given, **changes}), 0) as node:
        for _ in range(2):
            node.get("/log/bounds", [("topic", "t")])


@pytest.mark.parametrize(
    ("plain", "changes", "shown"),
    [
        (SAYS_NOTHING, {}, [None, None]),
        (ASKS, {}, SHOWN),
        (ASKS, {**FROM_LOOKUPD, "authAllowCleartext": "true"}, SHOWN),
    ],
    indirect=["plain"],
)
def test_secret_is_shown_from_the_first_request_for_it(plain, tmp_path, changes, shown):
    address, seen = plain
    ask(address, tmp_path, **changes)

    assert seen == shown


@pytest.mark.parametrize(
    ("plain", "changes", "sentence"),
    [
        (NAMES_HTTPS, {}, "connection refused"),
        (ASKS, FROM_LOOKUPD, "named by nsqlookupd, where anybody may register"),
        (
            ASKS,
            {"tlsInsecureSkipVerify": "true"},
            "asks for the AUTH secret over plain HTTP, and the TLS options say",
        ),
        (ASKS, {"authSecretFile": "/dev/null"}, "option authSecretFile: /dev/null is empty or has several"),
        (ASKS, {"authSecretFile": "/no"}, "option authSecretFile: /no cannot be read: no such file"),
    ],
    indirect=["plain"],
)
def test_secret_is_not_shown_in_plain_text(plain, tmp_path, changes, sentence):
    address, seen = plain
    with pytest.raises((NodeError, SourceError), match=sentence):
        ask(address, tmp_path, **changes)

    assert seen == [None]
