"""nsqd's registration with nsqlookupd: with the real daemon, and with peers that misbehave."""

import asyncio
import contextlib
import io
import json
import time
from contextlib import AsyncExitStack

import pytest

from nsqcore.lookup_protocol import (
    CommandParser,
    Identify,
    PeerInfo,
    Ping,
    Register,
    Unregister,
    encode_reply,
)
from nsqcore.process.clock import steady_ns
from nsqcore.process.logs import Log, LogLevel
from nsqd.replication.choosing import Candidate
from nsqd.server.lookup.peer import LookupPeers
from nsqlookupd.daemon import Nsqlookupd
from nsqlookupd.opening import open_all
from nsqlookupd.options import NsqlookupdOptions
from tests.support.peers import scripted_peer
from tests.support.waiting import eventually, wait_until
from tests.support.wire import Wire

IDENTITY = {"broadcast_address": "nsqd-a", "tcp_port": 4150, "http_port": 4151, "version": "1.3.0"}
REPLY = b'{"broadcast_address":"127.0.0.1","hostname":"h","http_port":%d,"tcp_port":4160,"version":"1.3.0"}'

USABLE = {"identity": "61" * 16, "broadcast_address": "a", "tcp_port": 4150, "accepts_replicas": True}


class Nsqd:
    """Stands in for the broker of LookupPeers: topics with their channels, and a log."""

    def __init__(self, stack):
        self.topics = {}
        self.lines = io.StringIO()
        self._stack = stack

    def announce(self, *addresses, **more):
        peers = LookupPeers(
            addresses,
            lambda: IDENTITY,
            lambda: [(topic, list(channels)) for topic, channels in self.topics.items()],
            Log("", LogLevel.DEBUG, self.lines),
            **more,
        )
        peers.start()
        self._stack.push_async_callback(peers.stop)
        return peers

    def logged(self):
        return [line.split(" ", 2)[2] for line in self.lines.getvalue().splitlines()]


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def nsqd(stack):
    return Nsqd(stack)


@pytest.fixture
def lookupd(stack):
    """A function that starts an nsqlookupd, on given ports if a test needs them."""

    async def start(tcp="127.0.0.1:0", http="127.0.0.1:0", broadcast="127.0.0.1"):
        options = NsqlookupdOptions(tcp_address=tcp, http_address=[http], broadcast_address=broadcast)
        log = Log("", stream=io.StringIO())
        daemon = Nsqlookupd(options, log, open_all(options, log))
        await daemon.start()
        stack.push_async_callback(daemon.stop)
        return daemon

    return start


def known(daemon):
    """The registrations of the only nsqd: topic -> channels; None if the nsqlookupd knows no nsqd."""
    nodes = list(daemon.registry.nodes(time.time_ns()))
    if not nodes:
        return None
    return {topic: daemon.registry.channels(topic) for topic in nodes[0].topics}


async def knows(daemon, expected, seconds=10):
    await eventually(lambda: known(daemon) == expected, f"nsqlookupd knows {expected}", seconds)


async def connected(peers, count=1):
    await eventually(
        lambda: sum(peer.connected for peer in peers.peers()) == count, f"{count} peers are connected"
    )


def add(daemon, name, identity, **more):
    """Register a node at an nsqlookupd as an nsqd does."""
    info = PeerInfo(name, 4150, 4151, "1.3.0", identity=identity.hex(), **more)
    return daemon.registry.add_peer("10.0.0.1:5000", info, steady_ns())


@contextlib.asynccontextmanager
async def answering(status, body):
    """An HTTP server that gives the same answer to everything; yields its port."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status} -\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write((head + body).encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


# -- a healthy peer ----------------------------------------------------------------------


async def test_topics_are_registered_immediately(nsqd, lookupd):
    daemon = await lookupd()
    nsqd.topics = {"t": ["b", "a", "e#ephemeral"], "empty": []}
    nsqd.announce(daemon.tcp.address)

    await knows(daemon, {"empty": [], "t": ["a", "b", "e#ephemeral"]})
    assert [peer.info.broadcast_address for peer in daemon.registry.producers("t", time.time_ns())] == [
        "nsqd-a"
    ]


async def test_changes_are_registered_immediately(nsqd, lookupd):
    daemon = await lookupd()
    peers = nsqd.announce(daemon.tcp.address)
    await connected(peers)
    peers.register("t")
    peers.register("t", "c#ephemeral")
    peers.register("u")

    await knows(daemon, {"t": ["c#ephemeral"], "u": []})
    peers.unregister("t", "c#ephemeral")
    peers.unregister("u")
    await knows(daemon, {"t": []})
    label = daemon.tcp.address
    assert f"INFO: LOOKUPD({label}): topic REGISTER t" in nsqd.logged()
    assert f"INFO: LOOKUPD({label}): channel UNREGISTER t c#ephemeral" in nsqd.logged()


async def test_pings_keep_registration_fresh(nsqd, lookupd):
    daemon = await lookupd()
    peers = nsqd.announce(daemon.tcp.address, ping_interval_s=0.02)
    await eventually(lambda: peers.peers()[0].last_ping_ns, "a ping was answered")

    (node,) = daemon.registry.nodes(time.time_ns())
    before = node.peer.last_update_ns
    await eventually(lambda: node.peer.last_update_ns > before, "the next ping arrives")
    assert f"DEBUG: LOOKUPD({daemon.tcp.address}): sending heartbeat" in nsqd.logged()


async def test_pings_go_out_also_while_one_change_follows_the_other(nsqd, lookupd):
    daemon = await lookupd()
    peers = nsqd.announce(daemon.tcp.address, ping_interval_s=0.1)
    await connected(peers)
    number = 0
    async with asyncio.timeout(20):
        while not peers.peers()[0].last_ping_ns:
            # There is a change in each round of the loop, so in each round trip.
            peers.register("t", f"c{number % 100}#ephemeral")
            number += 1
            await asyncio.sleep(0)


async def test_idle_peer_stays_connected(nsqd, lookupd):
    daemon = await lookupd()
    nsqd.topics = {"t": []}
    peers = nsqd.announce(daemon.tcp.address, io_timeout_s=0.5)
    await knows(daemon, {"t": []})
    await connected(peers)

    await asyncio.sleep(0.7)

    assert not [line for line in nsqd.logged() if line.startswith("ERROR")]


async def test_session_is_logged(nsqd, lookupd):
    daemon = await lookupd()
    label = daemon.tcp.address
    peers = nsqd.announce(label)
    await connected(peers)

    info = (
        f"{{TCPPort:{daemon.tcp.port} HTTPPort:{daemon.http.port} Version:1.3.0 BroadcastAddress:127.0.0.1}}"
    )
    assert nsqd.logged()[:3] == [
        f"INFO: LOOKUP({label}): adding peer",
        f"INFO: LOOKUP connecting to {label}",
        f"INFO: LOOKUPD({label}): peer info {info}",
    ]


async def test_stop_closes_connection_and_ends_every_task(nsqd, lookupd):
    daemon = await lookupd()
    peers = nsqd.announce(daemon.tcp.address, "127.0.0.1:1")
    await connected(peers)
    await peers.stop()

    await knows(daemon, None)
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert not {name for name in names if name.startswith(("lookupd ", "resolve "))}
    assert nsqd.logged()[-1] == "INFO: LOOKUP: closing"


# -- failures ------------------------------------------------------------------------------


async def test_topics_are_registered_again_after_restart_of_nsqlookupd(nsqd, lookupd):
    first = await lookupd()
    nsqd.topics = {"t": ["c"]}
    peers = nsqd.announce(first.tcp.address)
    await knows(first, {"t": ["c"]})
    await first.stop()
    await eventually(lambda: not peers.peers()[0].connected, "the loss is noticed without waiting for a ping")
    peers.register("lost")  # without a listener
    nsqd.topics = {"t": [], "new": ["c"], "lost": []}

    second = await lookupd(first.tcp.address, first.http.address)

    await knows(second, {"t": [], "new": ["c"], "lost": []}, 5)
    assert not peers.peers()[0].last_error


async def test_silent_peer_delays_no_other(nsqd, lookupd):
    async def silent(reader, _):
        await reader.read()

    daemon = await lookupd()
    async with scripted_peer(silent) as dead:
        peers = nsqd.announce(dead, daemon.tcp.address, io_timeout_s=0.3)
        await connected(peers)
        peers.register("t")
        await knows(daemon, {"t": []}, 1)

        await eventually(lambda: peers.peers()[0].last_error, "the silence is noticed")
        assert peers.peers()[0].last_error == "IDENTIFY - i/o timeout"
        await peers.stop()


async def error_of(nsqd, script):
    """The state of a peer that answers as *script* does, when its first error is noticed."""
    async with scripted_peer(script) as address:
        peers = nsqd.announce(address)
        await eventually(lambda: peers.peers()[0].last_error, "the error is noticed")
        (state,) = peers.peers()
        await peers.stop()
    return state


@pytest.mark.parametrize("answer", [b"E_INVALID", b"E_BAD_BODY IDENTIFY missing fields", b"", b"[]"])
async def test_peer_that_refuses_identity_is_left(nsqd, answer):
    async def refusing(reader, writer):
        await reader.readuntil(b"}")
        writer.write(encode_reply(answer))

    state = await error_of(nsqd, refusing)

    assert state.last_error.startswith("IDENTIFY - ")
    assert answer.decode() in state.last_error
    assert not state.connected


async def test_refused_registration_is_logged_with_its_reason(nsqd):
    async def refusing(reader, writer):
        await reader.readuntil(b"}")
        writer.write(encode_reply(REPLY % 4161))
        await reader.readline()
        writer.write(encode_reply(b"E_BAD_TOPIC REGISTER topic name 't' is not valid"))

    nsqd.topics = {"t": []}
    state = await error_of(nsqd, refusing)

    assert state.last_error == "REGISTER t - E_BAD_TOPIC REGISTER topic name 't' is not valid"
    assert f"ERROR: LOOKUPD({state.address}): {state.last_error}" in nsqd.logged()


async def test_peer_that_sends_replies_without_requests_is_left(nsqd):
    sent = []

    async def talkative(reader, writer):
        await reader.readuntil(b"}")
        writer.write(encode_reply(REPLY % 4161))
        with contextlib.suppress(ConnectionError):
            while len(sent) < 64:
                writer.write(encode_reply(b"x" * (1 << 20)))
                await writer.drain()
                sent.append(1)

    assert "a reply came without a request" in (await error_of(nsqd, talkative)).last_error
    assert len(sent) < 64


async def test_http_server_on_port_of_peer_is_named_as_one(nsqd):
    async def web(reader, writer):
        await reader.read(4)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    assert "an HTTP port" in (await error_of(nsqd, web)).last_error


async def test_slow_peer_gets_only_last_state_of_each_name(nsqd):
    received = []
    registering = asyncio.Event()
    go_on = asyncio.Event()

    async def slow(reader, writer):
        parser = CommandParser()
        while data := await reader.read(65536):
            parser.feed(data)
            while (command := parser.next_command()) is not None:
                received.append(command)
                if command == Register("first"):
                    registering.set()
                    await go_on.wait()
                writer.write(encode_reply(REPLY % 4161 if isinstance(command, Identify) else b"OK"))

    nsqd.topics = {"first": []}
    async with scripted_peer(slow) as address:
        peers = nsqd.announce(address, io_timeout_s=10)
        await registering.wait()
        for _ in range(1000):
            peers.register("t", "c")
            peers.register("u")
            peers.unregister("t", "c")
        go_on.set()
        await eventually(lambda: len(received) >= 4, "the rest arrives")
        await peers.stop()

    assert received[2:] == [Register("u"), Unregister("t", "c")]
    assert Ping() not in received


async def test_nsqlookupd_of_the_original_is_not_told_what_it_does_not_understand(nsqd):
    received = []

    async def original(reader, writer):
        parser = CommandParser()
        while data := await reader.read(65536):
            parser.feed(data)
            while (command := parser.next_command()) is not None:
                received.append(command)
                writer.write(encode_reply(REPLY % 4161 if isinstance(command, Identify) else b"OK"))

    async with scripted_peer(original) as address:
        peers = nsqd.announce(address)
        await connected(peers)
        peers.set_obstacle("draining")
        peers.register("t")
        await eventually(lambda: Register("t") in received, "the later event is sent")
        await peers.stop()

    assert [type(command) for command in received] == [Identify, Register]


# -- addresses -----------------------------------------------------------------------------


async def test_new_list_adds_and_removes_peers(nsqd, lookupd):
    old, kept, new = await lookupd(), await lookupd(), await lookupd()
    peers = nsqd.announce(old.tcp.address, kept.tcp.address)
    await connected(peers, 2)
    (node,) = kept.registry.nodes(time.time_ns())

    peers.set_addresses([kept.tcp.address, new.tcp.address])

    await knows(new, {})
    await knows(old, None)
    assert [after.peer for after in kept.registry.nodes(time.time_ns())] == [node.peer]
    assert [peer.address for peer in peers.peers()] == [kept.tcp.address, new.tcp.address]
    assert f"INFO: LOOKUP({old.tcp.address}): removing peer" in nsqd.logged()
    assert f"INFO: LOOKUP({new.tcp.address}): adding peer" in nsqd.logged()


async def test_addresses_behind_name_are_peers_and_may_change(nsqd, lookupd):
    one = await lookupd()
    two = await lookupd(f"127.0.0.2:{one.tcp.port}")
    three = await lookupd(f"127.0.0.3:{one.tcp.port}")
    found = ["127.0.0.1", "127.0.0.2"]

    async def resolve(host, _):
        assert host == "lookup.test"
        return list(found)

    name = f"lookup.test:{one.tcp.port}"
    peers = nsqd.announce(name, resolve=resolve, resolve_interval_s=0.02)
    await connected(peers, 2)
    assert [peer.address for peer in peers.peers()] == [f"{name}/127.0.0.1", f"{name}/127.0.0.2"]

    found[:] = ["127.0.0.1", "127.0.0.3"]
    await connected(peers, 3)  # an address that left the name stays as long as its connection lasts
    peers.register("t")
    for daemon in (one, two, three):
        await knows(daemon, {"t": []})
    await two.stop()
    await eventually(lambda: len(peers.peers()) == 2, "who has left does not come back")
    assert all(peer.connected for peer in peers.peers())


async def test_peer_with_new_address_is_found_immediately(nsqd, lookupd):
    old = await lookupd()
    found = ["127.0.0.1"]

    async def resolve(_, __):
        return list(found)

    nsqd.topics = {"t": ["c"]}
    # With this interval the timer does not look up the name before the test ends.
    peers = nsqd.announce(f"lookup.test:{old.tcp.port}", resolve=resolve, resolve_interval_s=600)
    await knows(old, {"t": ["c"]})
    new = await lookupd(f"127.0.0.2:{old.tcp.port}")
    found[:] = ["127.0.0.2"]
    await old.stop()

    await knows(new, {"t": ["c"]}, 5)
    assert len(peers.peers()) == 1


async def test_peer_that_keeps_hanging_up_is_complained_of_once(nsqd):
    attempts = 0

    async def refusing(_, writer):
        nonlocal attempts
        attempts += 1
        writer.close()

    async with scripted_peer(refusing) as address:
        peers = nsqd.announce(address)
        await eventually(lambda: attempts >= 4, "the peer is tried again and again")
        await peers.stop()

    assert len([line for line in nsqd.logged() if line.startswith("ERROR")]) == 1


async def test_name_that_does_not_resolve_is_peer_with_error(nsqd):
    peers = nsqd.announce("no.such.host.invalid:4160", "nonsense")
    await eventually(lambda: all(peer.last_error for peer in peers.peers()), "the errors are seen")

    first, second = peers.peers()
    assert first.last_error.startswith("lookup - ")
    assert second.last_error == "lookup - address nonsense: missing port in address"
    assert not first.connected


# -- channels of a topic -------------------------------------------------------------------


async def test_channels_of_all_peers_are_joined_without_ephemeral_ones(nsqd, lookupd):
    one, two = await lookupd(), await lookupd()
    one.registry.create_channel("t", "b")
    one.registry.create_channel("t", "e#ephemeral")
    two.registry.create_channel("t", "a")
    two.registry.create_channel("t", "b")
    peers = nsqd.announce(one.tcp.address, two.tcp.address)
    await connected(peers, 2)

    assert await peers.channels_of("t") == ["a", "b"]
    assert await peers.channels_of("unknown") == []


async def test_peer_without_http_is_logged_and_others_count(nsqd, lookupd):
    one, two = await lookupd(), await lookupd()
    two.registry.create_channel("t", "a")
    peers = nsqd.announce(one.tcp.address, two.tcp.address)
    await connected(peers, 2)
    await one.http.close()

    assert await peers.channels_of("t") == ["a"]
    (warning,) = [line for line in nsqd.logged() if line.startswith("WARNING")]
    assert warning.startswith(
        f'WARNING: failed to query nsqlookupd for channels to pre-create for topic t - Get "http://{one.http.address}'
    )


# -- nodes of replication ---------------------------------------------------------------------


async def test_addresses_of_identities_come_from_all_nsqlookupds(nsqd, lookupd):
    one, two = await lookupd(), await lookupd()
    a, b, unknown = b"a" * 16, b"b" * 16, b"?" * 16
    for daemon, name in ((one, "a-old"), (one, "a"), (two, "a"), (two, "::1")):
        add(daemon, name, a)
    add(two, "b", b)
    peers = nsqd.announce(one.tcp.address, two.tcp.address)
    await connected(peers, 2)

    found = await peers.addresses_of([a, b, unknown])
    assert {identity: set(addresses) for identity, addresses in found.items()} == {
        a: {"a:4150", "a-old:4150", "[::1]:4150"},
        b: {"b:4150"},
    }
    assert found[a].index("a:4150") < found[a].index("a-old:4150")
    assert await peers.addresses_of([]) == {}


async def test_addresses_of_many_identities_are_asked_in_several_questions(nsqd, lookupd):
    daemon = await lookupd()
    identities = [number.to_bytes(16, "big") for number in range(1000)]
    for number, identity in enumerate(identities):
        add(daemon, f"n{number}", identity)
    peers = nsqd.announce(daemon.tcp.address)
    await connected(peers)

    found = await peers.addresses_of(identities)
    assert found == {identity: [f"n{number}:4150"] for number, identity in enumerate(identities)}


async def test_candidates_accept_replicas_and_are_named_once(nsqd, lookupd):
    one, two = await lookupd(), await lookupd()
    for daemon in (one, two):
        add(daemon, "a", b"a" * 16, hostname="h", topology_zone="z", accepts_replicas=True)
        add(daemon, "b", b"b" * 16)
    peers = nsqd.announce(one.tcp.address, two.tcp.address)
    await connected(peers, 2)

    assert await peers.candidates() == [Candidate(b"a" * 16, "a:4150", "z", "h")]


async def test_candidates_of_dead_nsqlookupd_are_missing_with_one_warning(nsqd, lookupd):
    one, two = await lookupd(), await lookupd()
    add(two, "a", b"a" * 16, accepts_replicas=True)
    peers = nsqd.announce(one.tcp.address, two.tcp.address)
    await connected(peers, 2)
    await one.http.close()

    for _ in range(3):
        assert [node.address for node in await peers.candidates()] == ["a:4150"]
    (warning,) = [line for line in nsqd.logged() if line.startswith("WARNING")]
    assert warning.startswith(
        f'WARNING: failed to query nsqlookupd for nodes - Get "http://{one.http.address}/lookup/nodes"'
    )


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (404, {"message": "NOT_FOUND"}),  # Go's nsqlookupd
        (200, {}),
        (200, {"nodes": []}),
        (200, {"nodes": [{}]}),
        (200, {"nodes": [{**USABLE, "identity": "me"}]}),
        (200, {"nodes": [{**USABLE, "broadcast_address": ""}]}),
        (200, {"nodes": [{**USABLE, "tcp_port": 0}]}),
        (200, {"nodes": [{**USABLE, "tcp_port": 70000}]}),
    ],
)
async def test_nodes_of_nsqlookupd_without_usable_entries_are_none(nsqd, lookupd, status, answer):
    daemon = await lookupd()
    async with answering(status, json.dumps(answer)) as port:
        daemon.connections.identity = json.dumps(
            {"broadcast_address": "127.0.0.1", "tcp_port": 4160, "http_port": port, "version": "1.3.0"}
        ).encode()
        peers = nsqd.announce(daemon.tcp.address)
        await connected(peers)

        assert await peers.candidates() == []
        assert await peers.addresses_of([b"a" * 16]) == {}
    assert [line for line in nsqd.logged() if line.startswith("WARNING")] == []


async def test_peer_without_broadcast_address_is_not_asked(nsqd, lookupd):
    daemon = await lookupd(broadcast="")
    daemon.registry.create_channel("t", "a")
    peers = nsqd.announce(daemon.tcp.address)
    await connected(peers)

    assert await peers.channels_of("t") == []
    assert f"ERROR: LOOKUPD({daemon.tcp.address}): no broadcast address" in nsqd.logged()


def test_lookup_right_after_the_first_ok_finds_new_topic(cluster):
    lookupd = cluster.nsqlookupd()
    daemon = cluster.nsqd()
    wait_until(lambda: lookupd.get("/nodes")["producers"], "nsqd is registered")
    found = 0
    with Wire(("127.0.0.1", daemon.tcp_port)) as wire:
        for number in range(40):
            wire.publish(f"new{number}", b"x")
            found += lookupd.request("GET", f"/lookup?topic=new{number}")[0] == 200

    assert found >= 39


async def test_changes_are_written_before_reply_to_earlier_one(nsqd):
    written = []

    async def silent(reader, writer):
        parser = CommandParser()
        while data := await reader.read(4096):
            parser.feed(data)
            while (command := parser.next_command()) is not None:
                written.append(command)
                if isinstance(command, Identify):
                    writer.write(encode_reply(REPLY % 1))

    async with scripted_peer(silent) as address:
        peers = nsqd.announce(address)
        await eventually(lambda: peers.peers() and peers.peers()[0].connected, "it is connected")
        for number in range(3):
            peers.register(f"t{number}")
        await eventually(lambda: len(written) == 4, "all changes came, though no reply went back")
