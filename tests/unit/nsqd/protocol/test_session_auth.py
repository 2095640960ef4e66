"""A session that has to be authorized answers in order, however long the auth server takes."""

import json
import struct

import pytest

from nsqd.protocol.auth import parse_authorizations
from tests.support.engine import Client, Node
from tests.support.wire import sized

OK_FRAME = (0, b"OK")
ANSWER = {"identity": "me", "identity_url": "", "permission_count": 1}


AUTH = b"AUTH\n" + sized(b"secret")
PUB = b"PUB t\n" + sized(b"body")


class AuthClient(Client):
    """A client whose questions are answered as an auth server would."""

    def __init__(self, **limits):
        super().__init__(Node(auth_required=True, **limits))

    def grant(self, *, ttl=60, topic="^t$", channels=(".*",), permissions=("publish", "subscribe")):
        grants = [{"topic": topic, "channels": channels, "permissions": permissions}]
        return self.answer({"ttl": ttl, "identity": "me", "authorizations": grants})

    def answer(self, answer):
        found = parse_authorizations(json.dumps(answer).encode(), self.node.now_ns)
        self.session.authorized(found, self.node.now_ns)
        return self.hears()

    def fail(self):
        self.session.authorized(None, self.node.now_ns)
        return self.hears()

    def topics(self):
        return {name: topic.message_count for name, topic in self.node.broker.topics.items()}


@pytest.fixture
def client():
    return AuthClient()


@pytest.fixture
def known(client):
    client.says(AUTH)
    client.grant()
    return client


def error(text):
    return [(1, text.encode())]


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (PUB, "PUB"),
        (b"MPUB t\n", "MPUB"),
        (b"DPUB t 5\n" + sized(b"x"), "DPUB"),
        (b"SUB t c\n", "SUB"),
    ],
)
def test_publish_and_subscribe_need_auth(client, command, word):
    assert client.says(command) == error(f"E_AUTH_FIRST AUTH required before {word}")
    assert client.session.closing
    assert client.topics() == {}


def test_commands_sent_behind_auth_wait_for_it_and_keep_their_order(client):
    pipelined = b"NOP\n" + AUTH + PUB + b"MPUB t\n" + sized(struct.pack(">I", 1) + sized(b"x")) + b"SUB t c\n"
    assert client.says(pipelined) == []
    assert client.says(b"CLS\n") == []
    assert client.topics() == {}

    who, *rest = client.grant()
    assert json.loads(who[1]) == ANSWER
    assert rest == [OK_FRAME, OK_FRAME, OK_FRAME, (0, b"CLOSE_WAIT")]
    assert client.topics() == {"t": 2}


def test_command_may_be_cut_anywhere_while_question_is_out(client):
    client.says(AUTH + PUB[:8])
    for n in range(8, len(PUB)):
        assert client.says(PUB[n : n + 1]) == []

    assert client.grant()[1:] == [OK_FRAME]


def test_commands_before_end_of_stream_are_applied(client):
    client.says(AUTH + PUB)
    client.session.end_of_stream(client.node.now_ns)
    assert not client.session.closing

    assert client.grant()[1:] == [OK_FRAME]
    assert client.session.closing


def test_failed_auth_ends_connection_with_error(client):
    client.says(AUTH + PUB)

    assert client.fail() == error("E_AUTH_FAILED AUTH failed")
    assert client.session.closing
    assert client.topics() == {}


def test_empty_list_is_no_authorization(client):
    client.says(AUTH)

    assert client.answer({"ttl": 1}) == error("E_UNAUTHORIZED AUTH no authorizations found")


def test_auth_is_said_once(known):
    assert known.says(AUTH) == error("E_INVALID AUTH already set")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (b"PUB x\n" + sized(b"b"), 'PUB on "x" ""'),
        (b"MPUB x\n", 'MPUB on "x" ""'),
        (b"DPUB x 1\n" + sized(b"b"), 'DPUB on "x" ""'),
        (b"SUB x c\n", 'SUB on "x" "c"'),
    ],
)
def test_command_without_grant_is_refused_with_names(known, command, text):
    assert known.says(command) == error(f"E_UNAUTHORIZED AUTH failed for {text}")
    assert known.session.closing
    assert known.topics() == {}


def test_refusal_keeps_what_was_allowed_before_it(known):
    assert known.says(PUB + b"PUB x\n" + sized(b"b")) == [
        OK_FRAME,
        *error('E_UNAUTHORIZED AUTH failed for PUB on "x" ""'),
    ]
    assert known.topics() == {"t": 1}


def test_command_after_ttl_asks_again(known):
    assert known.says(PUB + PUB) == [OK_FRAME, OK_FRAME]
    known.node.advance(61)

    assert known.says(PUB + PUB) == []
    assert known.session.query.secret == b"secret"
    # The reply to AUTH is not sent twice.
    assert known.grant() == [OK_FRAME, OK_FRAME]
    assert known.says(PUB) == [OK_FRAME]


@pytest.mark.parametrize(
    ("answer", "refusal"),
    [
        (None, "E_AUTH_FAILED AUTH failed"),
        ({"ttl": 1}, 'E_UNAUTHORIZED AUTH failed for PUB on "t" ""'),
        ({"ttl": 1, "authorizations": [{"topic": "t"}]}, 'E_UNAUTHORIZED AUTH failed for PUB on "t" ""'),
    ],
)
def test_publisher_without_grant_after_ttl_is_refused(known, answer, refusal):
    known.says(PUB)
    known.node.advance(61)
    known.says(PUB)

    assert (known.fail() if answer is None else known.answer(answer)) == error(refusal)
    assert known.topics() == {"t": 1}


def test_client_that_left_is_not_missed(client):
    client.says(AUTH + PUB)
    client.session.disconnect()

    assert client.grant() == []
    assert client.topics() == {}
