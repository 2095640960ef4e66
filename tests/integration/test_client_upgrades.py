"""TLS, compression and AUTH between the client and nsqd: ours, and the original where it is installed."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
import uvloop

from nsqclient import AuthError, Config, Consumer, HandshakeError, Producer
from nsqclient.wire.errors import ProtocolError
from tests.support.auth_server import AuthServer, granted
from tests.support.certificates import Authority
from tests.support.peers import scripted_peer
from tests.support.processes import Daemon
from tests.support.waiting import eventually

Start = Callable[..., Daemon]

COMPRESSIONS = [{}, {"deflate": True}, {"deflate": True, "deflate_level": 1}, {"snappy": True}]


@pytest.fixture(params=["ours", "go"])
def nsqd(request, cluster) -> Start:
    """A function that starts an nsqd with flags."""
    return cluster.nsqd if request.param == "ours" else cluster.go_nsqd


@pytest.fixture
def authority(tmp_path) -> Authority:
    return Authority(tmp_path / "ca")


async def round_trip(nsqd: Daemon, config: Config) -> None:
    """Publish messages of many sizes and read them back; far more than one read brings."""
    bodies = [b"%d " % n + b"x" * (n * 37 % 3000) for n in range(1000)] + [bytes(500_000)]
    # Long messages of one moment are given to the system as they are, in pieces.
    long_ones = [b"%d " % n + b"y" * 9000 for n in range(60)]
    received = []
    async with Producer(nsqd.tcp_address, config=config) as producer:
        await asyncio.gather(*(producer.publish("t", body) for body in bodies[:100]))
        await asyncio.gather(*[await producer.submit("t", body) for body in long_ones])
        for first in range(100, len(bodies), 100):
            await producer.multi_publish("t", bodies[first : first + 100])
    bodies += long_ones
    handle = lambda delivery: received.append(delivery.body)  # noqa: E731
    async with Consumer("t", "c", handle, nsqd_addresses=[nsqd.tcp_address], config=config) as consumer:
        await eventually(lambda: len(received) >= len(bodies), "all are back")
        [client] = nsqd.get("/stats?format=json&topic=t")["topics"][0]["channels"][0]["clients"]
        assert (client["tls"], client["deflate"], client["snappy"]) == (
            bool(config.tls),
            config.deflate,
            config.snappy,
        )
    assert sorted(received) == sorted(bodies)
    assert consumer.stats.finished == len(bodies)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("tls", [False, True])
async def test_messages_pass_with_each_negotiated_setting(nsqd, authority, tls, compression):
    running = nsqd(*authority.flags)
    config = Config(max_in_flight=200, tls=authority.client() if tls else False, **compression)

    await round_trip(running, config)


@pytest.mark.parametrize("compression", [{}, {"snappy": True}])
def test_uvloop_does_it_as_well(cluster, authority, compression):
    nsqd = cluster.nsqd(*authority.flags)
    config = Config(max_in_flight=200, tls=authority.client(), **compression)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(round_trip(nsqd, config))


async def test_client_shows_its_own_certificate(nsqd, authority):
    flags = [
        *authority.flags,
        f"--tls-root-ca-file={authority.file}",
        "--tls-client-auth-policy=require-verify",
    ]
    running = nsqd(*flags)

    async with Producer(running.tcp_address, config=Config(tls=authority.client(name="me"))) as producer:
        await producer.publish("t", b"x")

    async with Producer(running.tcp_address, config=Config(tls=authority.client())) as nameless:
        with pytest.raises(OSError):
            await nameless.publish("t", b"x")


async def test_tls_takes_path_of_certificate_authority(nsqd, authority):
    running = nsqd(*authority.flags)

    async with Producer(running.tcp_address, config=Config(tls=authority.file)) as producer:
        await producer.publish("t", b"x")


LAST_YEARS = (datetime(2019, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("names", "valid", "trusted", "reason"),
    [
        ([], (None, None), False, ""),
        (["nsqd.example.org"], (None, None), True, "IP address mismatch"),
        ([], LAST_YEARS, True, "certificate has expired"),
    ],
    ids=["of a stranger", "for another name", "expired"],
)
async def test_wrong_certificate_is_refused(nsqd, tmp_path, names, valid, trusted, reason):
    authority = Authority(tmp_path / "other", *names, valid=valid)
    running = nsqd(*authority.flags)
    config = Config(tls=authority.client() if trusted else True)

    async with Producer(running.tcp_address, config=config) as producer:
        with pytest.raises(HandshakeError, match=f"certificate not accepted.*{reason}"):
            await producer.publish("t", b"x")


async def test_nsqd_without_tls_gets_no_plain_message_instead(nsqd):
    running = nsqd()

    async with Producer(running.tcp_address, config=Config(tls=True)) as producer:
        with pytest.raises(HandshakeError, match="does not offer TLS"):
            await producer.publish("t", b"x")

    assert running.get("/stats?format=json")["topics"] == []


async def test_nsqd_that_insists_on_tls_refuses_the_others(nsqd, authority):
    running = nsqd(*authority.flags, "--tls-required=true")

    async with Producer(running.tcp_address) as producer:
        with pytest.raises((ProtocolError, OSError)):
            await producer.publish("t", b"x")


async def test_correct_secret_is_accepted(nsqd):
    with AuthServer(by_secret={"open sesame": granted()}, answer=granted(permissions=())) as server:
        running = nsqd(f"--auth-http-address={server.address}")

        await round_trip(running, Config(max_in_flight=200, auth_secret="open sesame"))


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        ("", "requires authentication, and there is no auth_secret"),
        ("guess", "refused the auth_secret: E_AUTH_FAILED"),
    ],
)
async def test_missing_or_wrong_secret_is_auth_error(nsqd, secret, reason):
    with AuthServer(status=403) as server:
        running = nsqd(f"--auth-http-address={server.address}")

        async with Producer(running.tcp_address, config=Config(auth_secret=secret)) as producer:
            with pytest.raises(AuthError, match=reason):
                await producer.publish("t", b"x")


async def test_unauthorized_command_is_refused(nsqd):
    with AuthServer(answer=granted(topic="mine", permissions=("publish",))) as server:
        running = nsqd(f"--auth-http-address={server.address}")

        async with Producer(running.tcp_address, config=Config(auth_secret="s")) as producer:
            await producer.publish("mine", b"x")
            with pytest.raises(ProtocolError, match="E_UNAUTHORIZED"):
                await producer.publish("yours", b"x")
            await producer.publish("mine", b"x")


async def test_auth_secret_is_not_sent_in_cleartext_to_discovered_nsqd(cluster, caplog):
    got: asyncio.Queue[bytes] = asyncio.Queue()
    with AuthServer(answer=granted()) as server:
        lookupd = cluster.nsqlookupd()
        running = cluster.nsqd(
            f"--auth-http-address={server.address}", "--broadcast-address=127.0.0.1", lookupds=[lookupd]
        )
        await eventually(lambda: lookupd.get("/nodes")["producers"], "nsqd is registered")
        named = {"lookupd_addresses": [lookupd.http_address]}

        async with Producer(**named, config=Config(auth_secret="s")) as producer:
            with pytest.raises(AuthError, match="named by nsqlookupd: without TLS the auth_secret is not"):
                await producer.publish("t", b"x")
        assert server.asked == []

        allowing = Config(auth_secret="s", auth_allow_cleartext=True)
        async with Producer(**named, config=allowing) as producer:
            await producer.publish("t", b"x")
        asked = len(server.asked)
        async with Consumer("t", "c", lambda _: None, **named, config=Config(auth_secret="s")):
            await eventually(lambda: "t/c" in caplog.text, "the consumer was refused")
        assert "named by nsqlookupd: without TLS" in caplog.text
        assert len(server.asked) == asked
        async with Consumer("t", "c", lambda one: got.put_nowait(one.body), **named, config=allowing):
            assert await got.get() == b"x"
        async with Producer(running.tcp_address, config=Config(auth_secret="s")) as producer:
            await producer.publish("t", b"by address")


async def test_peer_that_closes_during_tls_handshake_is_told_from_others(authority):
    async def offer_tls_and_leave(reader, writer):
        await reader.readuntil(b"IDENTIFY\n")
        await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        writer.write(b"\0\0\0\x16\0\0\0\0" + b'{"tls_v1":   true}')
        await reader.readexactly(1)

    config = Config(tls=authority.client())
    async with scripted_peer(offer_tls_and_leave) as address, Producer(address, config=config) as producer:
        with pytest.raises(HandshakeError, match="TLS"):
            await producer.publish("t", b"x")
