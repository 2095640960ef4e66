import json

import pytest

from nsqcore.lookup_protocol import Available, Identify, Ping, Register, Unregister
from nsqlookupd.registry import Registry
from nsqlookupd.session import NsqdSession, SessionNote

S = 1_000_000_000
PEER = "10.0.0.1:1234"
IDENTIFY = Identify(
    json.dumps(
        {
            "broadcast_address": "a",
            "tcp_port": 4150,
            "http_port": 4151,
            "version": "1.3.0",
            "remote_address": "spoofed:1",
        }
    ).encode()
)


@pytest.fixture
def registry():
    return Registry(300 * S, 45 * S)


@pytest.fixture
def session(registry):
    return NsqdSession(registry, b'{"tcp_port":4160}', PEER)


@pytest.fixture
def known(session):
    session.handle(IDENTIFY, 0)
    return session


def test_obstacle_changes_cached_answers(known):
    known.peer.text = known.peer.node_text = b"as before"
    known.handle(Available("draining"), 0)

    assert (known.peer.text, known.peer.node_text) == (b"", b"")


def test_ping_alone_refreshes_last_update(known):
    known.handle(Register("t"), 5)
    assert known.peer.last_update_ns == 0

    answer = known.handle(Ping(), 15 * S)

    assert answer.payload == b"OK"
    assert known.peer.last_update_ns == 15 * S
    assert answer.notes == (SessionNote(f"CLIENT({PEER}): pinged (last ping 15s)"),)


def test_registration_is_noted_once(known):
    notes = [known.handle(Register("t", "c"), 0).notes for _ in range(2)]

    assert notes == [
        (
            SessionNote(f"DB: client({PEER}) REGISTER category:channel key:t subkey:c"),
            SessionNote(f"DB: client({PEER}) REGISTER category:topic key:t subkey:"),
        ),
        (),
    ]


def test_channels_left_over_at_unregistered_topic_are_warned_of(known):
    known.handle(Register("t", "c"), 0)

    answer = known.handle(Unregister("t"), 0)

    assert answer.payload == b"OK"
    assert answer.notes == (
        SessionNote(
            f"DB: client({PEER}) unexpected UNREGISTER category:channel key:t subkey:c", warning=True
        ),
        SessionNote(f"DB: client({PEER}) UNREGISTER category:topic key:t subkey:"),
    )


def test_blank_at_the_end_of_line_is_no_channel(known, registry):
    known.handle(Register("t", ""), 0)

    assert registry.channels("t") == []


def test_session_that_never_identified_closes_silently(session):
    session.close(0)

    assert session.forget(1) == []
