"""Auth servers that require TLS."""

import ssl

import pytest

from nsqcore.process.logs import Log, LogLevel
from nsqd.options import NsqdOptions
from nsqd.server.auth import Asker, AuthServers
from nsqd.server.tls import trusted
from tests.support.auth_server import AuthServer
from tests.support.certificates import Authority

ASKER = Asker(secret=b"secret", remote_ip="127.0.0.1", tls=True, common_name="anna b")


def trust(file):
    return trusted(NsqdOptions(tls_root_ca_file=str(file))).context


async def ask(address, tls):
    servers = AuthServers(
        (address,),
        Log("[test] ", LogLevel.DEBUG),
        method="get",
        connect_timeout_s=5,
        request_timeout_s=5,
        tls=tls,
    )
    try:
        return await servers.ask(ASKER, "peer")
    finally:
        await servers.close()


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def https(authority):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.certificate, authority.key)
    with AuthServer(tls=context) as server:
        yield server


@pytest.fixture
def plain(https):
    """An auth server that refuses plain requests and names its HTTPS port."""
    with AuthServer(status=403, answer={"message": "TLS_REQUIRED", "https_port": https.port}) as server:
        yield server


async def test_server_that_wants_tls_is_asked_again_over_https(plain, https, authority):
    found = await ask(plain.address, trust(authority.file))

    assert found.identity == "anna"
    (asked,) = https.asked
    assert asked.target == "/auth?common_name=anna+b&remote_ip=127.0.0.1&secret=secret&tls=true"


async def test_https_address_is_queried_directly(https, authority):
    found = await ask(f"https://{https.address}/who", trust(authority.file))

    assert found.identity == "anna"
    assert https.asked[0].target.startswith("/who?")


async def test_server_whose_authority_is_unknown_is_not_believed(plain, https, tmp_path, capfd):
    stranger = Authority(tmp_path / "stranger")

    assert await ask(plain.address, trust(stranger.file)) is None
    assert https.asked == []
    assert "AUTH failed failed auth request" in capfd.readouterr().err


@pytest.mark.parametrize(
    "answer", ["no", "[" * 100_000, {}, {"https_port": "443"}, {"https_port": 0}, {"https_port": True}]
)
async def test_refusal_that_names_no_port_is_final(authority, answer):
    with AuthServer(status=403, answer=answer) as server:
        assert await ask(server.address, trust(authority.file)) is None
        assert len(server.asked) == 1
