"""A cluster that insists on HTTPS and on the AUTH secret, read as Spark would."""

import http.client

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipelines.source.errors import SourceError
from pipelines.source.options import SourceOptions
from pipelines.source.stream_reader import NsqStreamReader
from tests.support.auth_server import AuthServer, granted
from tests.support.certificates import Authority

LISTENERS = ("tcp", "http", "https")
ALL = ReadAllAvailable()


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "authority")


@pytest.fixture
def nsqd(cluster, authority):
    with AuthServer(by_secret={"let me in": granted(), "nobody": {}}) as server:
        flags = ["--tls-required=true", f"--auth-http-address={server.address}", "--http-auth"]
        yield cluster.nsqd(*authority.flags, *flags, listeners=LISTENERS)


@pytest.fixture
def options(nsqd, authority, topic, tmp_path):
    """What a query needs to be let in, and one message on the topic."""
    secret = tmp_path / "secret"
    secret.write_text("let me in\n")
    connection = http.client.HTTPSConnection(
        "127.0.0.1", nsqd.ports["https"], timeout=10, context=authority.client()
    )
    connection.request("POST", f"/pub?topic={topic}", b"kept", {"Authorization": "Bearer let me in"})
    assert connection.getresponse().read() == b"OK"
    connection.close()
    return {
        "nsqd_http_addresses": nsqd.http_address,
        "topic": topic,
        "channel": "archive",
        "retrySeconds": "0",
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


def test_an_https_address_can_be_given(options, nsqd):
    assert read(options | {"nsqd_http_addresses": f"https://127.0.0.1:{nsqd.ports['https']}"}) == [b"kept"]


def test_an_authority_that_is_not_trusted_is_named(options, tmp_path):
    stranger = Authority(tmp_path / "stranger")
    # It is not asked again and again: the next answer would be the same.
    with pytest.raises(SourceError, match=r"certificate that is not trusted here \(option tlsRootCaFile\)"):
        read(options | {"tlsRootCaFile": str(stranger.file), "retrySeconds": "3600"})


def test_a_file_that_does_not_exist_is_named(options):
    with pytest.raises(SourceError, match="the TLS options cannot be used: tls_root_ca_file '/nowhere'"):
        read(options | {"tlsRootCaFile": "/nowhere"})


def test_a_missing_secret_is_named(options):
    with pytest.raises(SourceError, match=r"wants the AUTH secret \(option authSecretFile\)"):
        read(options | {"authSecretFile": ""})


def test_a_secret_that_is_not_valid_is_named(options, tmp_path):
    (tmp_path / "other").write_text("nobody")
    with pytest.raises(SourceError, match="could not have the AUTH secret checked, or it is not valid"):
        read(options | {"authSecretFile": str(tmp_path / "other")})
