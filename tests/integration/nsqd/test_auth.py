"""AUTH over real sockets: a real nsqd asks a real auth server, which may require TLS."""

import json
import ssl

import pytest

from bench.ports import free_port
from nsqcore.process.logs import Log, LogLevel
from nsqd.options import NsqdOptions
from nsqd.server.auth import Asker, AuthServers
from nsqd.server.tls import trusted
from tests.support.auth_server import AuthServer, always_saying, granted
from tests.support.certificates import Authority
from tests.support.nsqd_http import channel_stats
from tests.support.processes import Cluster
from tests.support.waiting import wait_until
from tests.support.wire import pub, sized, sub

AUTH_FAILED = b"E_AUTH_FAILED AUTH failed"
ANNA = {"identity": "anna", "identity_url": "http://people/anna", "permission_count": 1}


def auth(secret=b"secret"):
    return b"AUTH\n" + sized(secret)


@pytest.fixture(scope="module")
def server():
    with AuthServer() as server:
        yield server


@pytest.fixture
def servers(server):
    server.reset()
    return server


@pytest.fixture(scope="module")
def guarded_nsqd(server, tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("auth"))
    yield cluster.nsqd(f"--auth-http-address={server.address}")
    cluster.close()


@pytest.fixture
def guarded(guarded_nsqd, servers):
    """An nsqd that asks the auth server."""
    guarded_nsqd.forget_logs()
    yield guarded_nsqd
    assert "Traceback" not in guarded_nsqd.logs()


@pytest.fixture
def wire(connect, guarded):
    return connect(guarded)


def test_client_is_told_that_auth_is_required_and_then_who_it_is(wire, topic):
    assert wire.identify()["auth_required"] is True
    assert json.loads(wire.ask(auth())) == ANNA
    wire.publish(topic, b"x")
    wire.subscribe(topic, ready=1)
    assert wire.message().body == b"x"


def test_server_is_asked_as_the_original_asks(wire, servers):
    wire.ask(auth(b"a b&c"))
    (asked,) = servers.asked

    assert asked.method == "GET"
    assert asked.target == "/auth?common_name=&remote_ip=127.0.0.1&secret=a+b%26c&tls=false"
    assert asked.headers["Accept"] == "application/vnd.nsq; version=1.0"


def test_server_is_asked_with_post_when_that_is_wanted(cluster, servers, connect):
    url = f"http://{servers.address}/who"
    nsqd = cluster.nsqd(f"--auth-http-address={url}", "--auth-http-request-method=post")
    connect(nsqd).ask(auth(b"a b"))
    (asked,) = servers.asked

    assert (asked.method, asked.target, asked.headers["Content-Type"]) == ("POST", "/who", "application/json")
    assert json.loads(asked.body) == {
        "common_name": [""],
        "remote_ip": ["127.0.0.1"],
        "secret": ["a b"],
        "tls": ["false"],
    }


@pytest.mark.parametrize(
    "answer",
    ["no json", granted(ttl=0), granted(topic="("), granted(permissions=("admin",)), {"ttl": "60"}],
)
def test_malformed_answer_is_failure(wire, servers, guarded, answer):
    servers.answer = answer
    assert wire.refusal(auth()) == AUTH_FAILED
    assert "WARNING: PROTOCOL(V2): " in guarded.logs()
    assert "AUTH failed failed auth request" in guarded.logs()


@pytest.mark.parametrize("status", [201, 403, 404, 500])
def test_server_that_does_not_say_200_grants_nothing(wire, servers, status):
    servers.status = status
    assert wire.refusal(auth()) == AUTH_FAILED


def test_topics_and_channels_that_are_not_granted_are_refused_by_name(connect, guarded, servers):
    servers.answer = granted(topic="^mine", channels=("^$", "^c$"))
    wire = connect(guarded)
    wire.ask(auth())
    wire.publish("mine", b"x")
    assert wire.refusal(pub("yours", b"x")) == b'E_UNAUTHORIZED AUTH failed for PUB on "yours" ""'

    wire = connect(guarded)
    wire.ask(auth())
    assert wire.refusal(sub("mine", "d")) == b'E_UNAUTHORIZED AUTH failed for SUB on "mine" "d"'
    assert not {"d", "yours"} & {
        name
        for topic in guarded.get("/stats?format=json")["topics"]
        for name in (topic["topic_name"], *[channel["channel_name"] for channel in topic["channels"]])
    }


# (pattern, topic, the answer to a PUB to it)
REFUSED = b"E_UNAUTHORIZED"
PATTERNS = [
    ("o", "foo", b"OK"),
    ("", "anything", b"OK"),
    (r"^orders\.[a-z]+$", "orders.new", b"OK"),
    (r"^orders\.[a-z]+$", "orders-new", REFUSED),
    ("^orders$", "orders2", REFUSED),
    (r"^foo\z", "foo", b"OK"),
    ("^[[:alpha:]_]+[[:digit:]]$", "ab_c1", b"OK"),
    ("[[:upper:]]", "lower", REFUSED),
    ("(?i)FOO", "foo", b"OK"),
    ("f(?i)OO", "foo", b"OK"),
    ("^f(?i)oo$", "FOO", REFUSED),
    ("(?U)^a+", "a", b"OK"),
    ("^(?P<name>a)$", "a", b"OK"),
    ("^a{2,3}$", "aaaa", REFUSED),
    (r"^[\w.-]+#ephemeral$", "t.x-y#ephemeral", b"OK"),
    (r"^\Qa.b\E$", "acb", REFUSED),
    (r"^\pL+$", "abc", b"OK"),
    ("(?=a)", "a", AUTH_FAILED),
    (r"(a)\1", "aa", AUTH_FAILED),
    ("a**", "a", AUTH_FAILED),
    ("a{1001}", "a", AUTH_FAILED),
    ("[[:nothing:]]", "a", AUTH_FAILED),
    ("(", "a", AUTH_FAILED),
]


def test_patterns_grant_what_they_grant_at_the_original(connect, guarded, servers):
    for number, (pattern, topic, answer) in enumerate(PATTERNS):
        secret = f"s{number}"
        servers.by_secret[secret] = granted(topic=pattern)
        wire = connect(guarded)
        wire.send(auth(secret.encode()))
        said = wire.frame().data
        if said != AUTH_FAILED:
            said = wire.ask_frame(pub(topic, b"x")).data
        assert said.startswith(answer), (pattern, topic, said)


def test_auth_needs_one_server_of_several(cluster, servers, connect):
    dead = f"127.0.0.1:{free_port()}"
    nsqd = cluster.nsqd(f"--auth-http-address={dead}", f"--auth-http-address={servers.address}")
    for _ in range(8):
        assert json.loads(connect(nsqd).ask(auth())) == ANNA


def test_client_waiting_for_auth_server_blocks_no_other(connect, guarded, servers):
    servers.held.add("slow")
    slow, quick = connect(guarded), connect(guarded)
    slow.send(auth(b"slow"), pub("t", b"slow"))
    wait_until(lambda: servers.asked, "the auth server is asked")

    assert json.loads(quick.ask(auth(b"quick"))) == ANNA
    quick.publish("t", b"quick")
    assert not slow.has_more()
    servers.release()
    assert json.loads(slow.response()) == ANNA
    slow.ok()


def test_stop_does_not_wait_for_auth_server(cluster, connect, servers):
    servers.held.add("slow")
    nsqd = cluster.nsqd(f"--auth-http-address={servers.address}")
    connect(nsqd).send(auth(b"slow"))
    wait_until(lambda: servers.asked, "the auth server is asked")
    assert nsqd.stop() == 0


SECRET = b"hush & hush/100%(\xc3\xa9"
ECHO = SECRET.decode()


REPLIES = [
    b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n%b" % (len(SECRET), SECRET),
    b"HTTP/1.1 302 Found\r\nLocation: gopher://x/?secret=hush\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: /auth?secret=hush\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 403 Forbidden\r\nContent-Length: 21\r\n\r\n" + b'{"https_port":"hush"}',
    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Length: 8\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nSet-Cookie: hush\x00=1\r\nContent-Length: 4\r\n\r\nhush",
    b"hush hush\r\n\r\n",
    b"",
]


@pytest.mark.parametrize("method", ["get", "post"])
def test_secret_is_never_logged_whatever_auth_server_does(cluster, connect, method):
    with always_saying(*REPLIES) as (address, asked):
        flags = (f"--auth-http-request-method={method}", "--log-level=debug")
        nsqd = cluster.nsqd(f"--auth-http-address=http://own:hush@{address}/auth", *flags)
        # After a redirect a client asks once more.
        while len(asked) < len(REPLIES):
            assert connect(nsqd).refusal(auth(SECRET)) == AUTH_FAILED

        assert f"AUTH failed failed auth request: http://{address}/auth " in nsqd.logs()
        assert "hush" not in nsqd.logs()
        assert "Traceback" not in nsqd.logs()


@pytest.mark.parametrize(
    "answer", [ECHO, granted(topic=ECHO), granted(channels=(ECHO,)), granted(permissions=(ECHO,))]
)
def test_secret_is_not_logged_when_it_is_part_of_answer(wire, servers, guarded, answer):
    servers.answer = answer
    assert wire.refusal(auth(SECRET)) == AUTH_FAILED
    assert "hush" not in guarded.logs()


def test_server_that_takes_too_long_grants_nothing(cluster, servers, connect):
    servers.held.add("secret")
    nsqd = cluster.nsqd(f"--auth-http-address={servers.address}", "--http-client-request-timeout=200ms")
    assert connect(nsqd).refusal(auth()) == AUTH_FAILED
    assert "timed out" in nsqd.logs()


def expired(wire, servers, answer, *, status=200):
    """Publish under a grant of one second until the server was asked again; return how that ended."""
    servers.answer = granted(ttl=1)
    wire.ask(auth())
    servers.answer, servers.status = answer, status

    def asked_again():
        wire.send(pub("t", b"x"))
        frame = wire.frame()
        return frame if len(servers.asked) > 1 else None

    return wait_until(asked_again, "the ttl is over")


def test_auth_server_is_asked_again_after_ttl(wire, servers):
    assert expired(wire, servers, granted()).data == b"OK"
    assert servers.asked[0] == servers.asked[1]
    wire.publish("t", b"y")
    assert len(servers.asked) == 2


def test_client_without_permission_is_refused_after_ttl(wire, servers):
    answer = granted(permissions=("subscribe",))
    assert expired(wire, servers, answer).data == b'E_UNAUTHORIZED AUTH failed for PUB on "t" ""'
    assert wire.is_closed()


def test_statistics_name_who_client_is(connect, guarded, topic):
    wire = connect(guarded)
    wire.ask(auth())
    wire.subscribe(topic)
    (client,) = channel_stats(guarded, topic)["clients"]

    keys = list(client)
    at = keys.index("user_agent") + 1
    assert keys[at : at + 3] == ["authed", "auth_identity", "auth_identity_url"]
    assert (client["authed"], client["auth_identity"]) == (True, "anna")
    assert client["auth_identity_url"] == "http://people/anna"


def test_http_api_queries_no_auth_server(guarded, servers):
    assert guarded.post("/pub?topic=t", b"x") == b"OK"
    assert servers.asked == []


# --- auth servers that require TLS


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
