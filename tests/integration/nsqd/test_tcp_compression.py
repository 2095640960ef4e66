"""Section 2.7: deflate and snappy, negotiated and used."""

import os
import zlib

import pytest

from tests.support.upgrades import compress, upgrade
from tests.support.waiting import wait_until
from tests.support.wire import fin, identify, mpub, pub

compressions = pytest.mark.parametrize("compression", ["deflate", "snappy"])


@compressions
def test_messages_are_published_and_consumed(connect, topic, compression):
    producer, consumer = connect(), connect()
    upgrade(producer, compression=compression)
    upgrade(consumer, compression=compression)
    bodies = [b"a", b"b" * 100_000, os.urandom(300_000), b"\n" * 10]

    consumer.subscribe(topic, ready=10)
    producer.publish(topic, *bodies[:2])
    assert producer.ask(mpub(topic, *bodies[2:])) == b"OK"
    messages = consumer.messages(4)

    assert [message.body for message in messages] == bodies
    consumer.send(*(fin(message) for message in messages))
    consumer.quiet()


@compressions
def test_bytes_sent_before_upgrade_are_lost(wire, topic, compression):
    wire.send(identify(feature_negotiation=True, **{compression: True}), pub(topic, b"too soon"))
    wire.response()
    compress(wire, compression)
    wire.publish(topic, b"in time")

    wire.subscribe(topic, ready=2)
    assert wire.message().body == b"in time"
    wire.quiet()


@compressions
def test_statistics_and_log_name_compression(nsqd, connect, topic, stats, compression):
    wire = connect()
    upgrade(wire, compression=compression)
    wire.subscribe(topic)

    (client,) = stats(topic, "ch")["clients"]
    assert {name: client[name] for name in ("deflate", "snappy")} == {
        "deflate": compression == "deflate",
        "snappy": compression == "snappy",
    }
    shown = {"deflate": "deflate (level 6)", "snappy": "snappy"}[compression]
    line = f"PROTOCOL(V2): [127.0.0.1:{wire.port}] upgrading connection to {shown}\n"
    assert line in nsqd.logs()


@compressions
def test_uncompressed_bytes_end_compressed_connection(nsqd, wire, compression):
    upgrade(wire, compression=compression)
    wire.socket._below.sendall(b"\xff" * 100)

    assert wire.rest() == b""
    wait_until(
        lambda: f"client(127.0.0.1:{wire.port}) - {compression}: " in nsqd.logs(), "the reason is logged"
    )


def test_deflate_and_snappy_together_are_refused(wire):
    refused = wire.refusal(identify(feature_negotiation=True, snappy=True, deflate=True))
    assert refused == b"E_IDENTIFY_FAILED cannot enable both deflate and snappy compression"


@pytest.mark.parametrize(("asked", "granted"), [(0, 6), (-1, 6), (1, 1), (5, 5), (6, 6), (9, 6)])
def test_level_of_deflate_is_clients_up_to_largest(wire, topic, asked, granted):
    answer = wire.identify(deflate=True, deflate_level=asked)
    assert answer["deflate_level"] == granted
    compress(wire, "deflate", granted)
    wire.publish(topic, b"m")


def test_ended_deflate_stream_has_its_commands_applied(connect, topic, nsqd):
    wire = connect()
    upgrade(wire, compression="deflate")
    last = zlib.compressobj(6, zlib.DEFLATED, -15)

    wire.socket._below.sendall(last.compress(pub(topic, b"last words")) + last.flush())

    assert wire.rest() in {b"", b"\x00\x00\x00\x06\x00\x00\x00\x00OK"}
    reader = connect()
    reader.subscribe(topic, ready=1)
    assert reader.message().body == b"last words"


@compressions
def test_compression_bomb_blocks_no_other_client(nsqd, connect, topic, compression):
    bomb, other = connect(), connect()
    upgrade(bomb, compression=compression)
    # Two publishes of 1 MB and then 64 MB of empty lines, of which the first ends the connection.
    packed = bomb.socket._codec.compress(2 * pub(topic, b"\0" * 1_000_000) + b"\n" * (64 << 20))

    bomb.socket._below.sendall(packed[: 1 << 20])
    other.publish(topic, b"next to it")

    bomb.ok(2)
    assert bomb.error() == b"E_INVALID invalid command "
    assert nsqd.is_running()


def test_server_that_was_told_so_grants_no_compression(cluster, connect):
    nsqd = cluster.nsqd("--deflate=false", "--snappy=false", "--max-deflate-level=3")
    wire = connect(nsqd)
    granted = wire.identify(deflate=True, snappy=True, deflate_level=9)
    assert (granted["deflate"], granted["snappy"], granted["deflate_level"]) == (False, False, 3)
    wire.publish("in-the-clear", b"m")


@compressions
def test_bytes_sent_before_synced_upgrade_are_lost(cluster, connect, compression):
    nsqd = cluster.nsqd("--sync-every=1")
    upgraded = 0
    for _ in range(30):
        wire = connect(nsqd)
        wire.send(pub("t", b"m"))
        wire.send(identify(feature_negotiation=True, **{compression: True}))
        wire.send(b"NOP\n")
        wire.ok()
        assert wire.response().startswith(b"{")
        try:
            compress(wire, compression)
            wire.publish("t", b"m")
        except (EOFError, ConnectionError):
            continue  # the NOP came so late that it followed the answer, where it is garbage
        upgraded += 1
    assert upgraded
    assert "Traceback" not in nsqd.logs()
