"""The session's answers, byte for byte as the contract of the TCP protocol states them."""

import json
import struct

import pytest

from nsqclient.wire.frames import FrameParser
from nsqd.protocol.connection_state import OK
from nsqd.protocol.session import MAX_NEW_TOPICS
from nsqd.protocol.states import ALLOWED, State
from tests.support.engine import Client, Node
from tests.support.wire import sized


def mpub(*bodies):
    return sized(struct.pack(">I", len(bodies)) + b"".join(map(sized, bodies)))


@pytest.fixture
def node():
    return Node(max_msg_size=100, max_body_size=1000)


@pytest.fixture
def client(node):
    return Client(node)


def error(text):
    return [(1, text.encode())]


def test_unknown_protocol_is_refused(node):
    session, _ = node.session()
    session.receive(b"GET / HTTP/1.1\r\n", node.now_ns)

    assert FrameParser().feed(session.take_replies()) == error("E_BAD_PROTOCOL")
    assert session.closing


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (b"\n", "E_INVALID invalid command "),
        (b"foo bar\n", "E_INVALID invalid command foo"),
        (b"pub t\n", "E_INVALID invalid command pub"),
        (b"\xff\xfe\n", "E_INVALID invalid command \\xff\\xfe"),
        (b"PUB\n", "E_INVALID PUB insufficient number of parameters"),
        (b"PUB bad$topic\n", 'E_BAD_TOPIC PUB topic name "bad$topic" is not valid'),
        (b"PUB  t\n", 'E_BAD_TOPIC PUB topic name "" is not valid'),
        (b"PUB " + b"t" * 65 + b"\n", f'E_BAD_TOPIC PUB topic name "{"t" * 65}" is not valid'),
        (b'PUB "\\\x01\n', 'E_BAD_TOPIC PUB topic name "\\"\\\\\\x01" is not valid'),
        (b"PUB t\n\0\0\0\0", "E_BAD_MESSAGE PUB invalid message body size 0"),
        (b"PUB t\n\xff\xff\xff\xff", "E_BAD_MESSAGE PUB invalid message body size -1"),
        (b"PUB t\n\0\0\0\x65", "E_BAD_MESSAGE PUB message too big 101 > 100"),
        (b"MPUB\n", "E_INVALID MPUB insufficient number of parameters"),
        (b"MPUB $\n", 'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "$" is not valid'),
        (b"MPUB t\n\0\0\0\0", "E_BAD_BODY MPUB invalid body size 0"),
        (b"MPUB t\n\0\0\x03\xe9", "E_BAD_BODY MPUB body too big 1001 > 1000"),
        (b"MPUB t\n" + sized(b"\0\0\0\0"), "E_BAD_BODY MPUB invalid message count 0"),
        (b"MPUB t\n" + sized(b"\0\0\0\xc8"), "E_BAD_BODY MPUB invalid message count 200"),
        (b"MPUB t\n" + mpub(b"a", b""), "E_BAD_MESSAGE MPUB invalid message(1) body size 0"),
        (b"MPUB t\n" + mpub(b"a", b"x" * 101), "E_BAD_MESSAGE MPUB message too big 101 > 100"),
        (b"MPUB t\n" + mpub(b""), "E_BAD_MESSAGE MPUB invalid message(0) body size 0"),
        (b"MPUB t\n" + mpub(b"x" * 101), "E_BAD_MESSAGE MPUB message too big 101 > 100"),
        (
            b"MPUB t\n" + sized(b"\0\0\0\1\xff\xff\xff\xffab"),
            "E_BAD_MESSAGE MPUB invalid message(0) body size -1",
        ),
        (b"DPUB t\n", "E_INVALID DPUB insufficient number of parameters"),
        (b"DPUB $ 1\n", 'E_BAD_TOPIC DPUB topic name "$" is not valid'),
        (b"DPUB t x\n", "E_INVALID DPUB could not parse timeout x"),
        (b"DPUB t -1\n", "E_INVALID DPUB could not parse timeout -1"),
        (b"DPUB t 3600001\n", "E_INVALID DPUB timeout 3600001 out of range 0-3600000"),
        (b"SUB t\n", "E_INVALID SUB insufficient number of parameters"),
        (b"SUB $ c\n", 'E_BAD_TOPIC SUB topic name "$" is not valid'),
        (b"SUB t $\n", 'E_BAD_CHANNEL SUB channel name "$" is not valid'),
        (b"AUTH x\n", "E_INVALID AUTH invalid number of parameters"),
        (b"AUTH\n" + sized(b"secret"), "E_AUTH_DISABLED AUTH disabled"),
        (b"IDENTIFY\n\0\0\0\0", "E_BAD_BODY IDENTIFY invalid body size 0"),
        (b"IDENTIFY\n\0\0\x03\xe9", "E_BAD_BODY IDENTIFY body too big 1001 > 1000"),
        (b"IDENTIFY\n" + sized(b"[]"), "E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (b"IDENTIFY\n" + sized(b"{} x"), "E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (b"IDENTIFY\n" + sized(b'{"msg_timeout":1e3}'), "E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (b"IDENTIFY\n" + sized(b'{"msg_timeout":999}'), "E_BAD_BODY IDENTIFY msg timeout (999) is invalid"),
        (b"IDENTIFY\n" + sized(b'{"sample_rate":100}'), "E_BAD_BODY IDENTIFY sample rate (100) is invalid"),
        (
            b"IDENTIFY\n" + sized(b'{"heartbeat_interval":60001}'),
            "E_BAD_BODY IDENTIFY heartbeat interval (60001) is invalid",
        ),
    ],
)
def test_bad_command_gets_its_error_and_ends_connection(client, command, answer):
    expected = (
        answer.encode().decode("unicode_escape").encode("latin-1") if "\\xff" in answer else answer.encode()
    )

    assert client.says(command) == [(1, expected)]
    assert client.session.closing
    assert client.says(b"NOP\nPUB t\n" + sized(b"x")) == []


@pytest.mark.parametrize("word", sorted(ALLOWED))
@pytest.mark.parametrize("state", list(State))
def test_commands_are_refused_in_wrong_state(node, word, state):
    client = Client(node)
    if state is not State.INIT:
        client.says(b"SUB t c\n")
    if state is State.CLOSING:
        client.says(b"CLS\n")

    answer = client.says(word + b"\n")

    refused = error(f"E_INVALID cannot {word.decode()} in current state")
    assert (answer == refused) == (state not in ALLOWED[word])


@pytest.mark.parametrize("word", ["FIN", "REQ", "TOUCH"])
def test_answering_what_is_not_in_flight_is_no_reason_to_close(client, word):
    client.says(b"SUB t c\n")
    unknown = "0" * 16
    delay = " 0" if word == "REQ" else ""

    assert client.says(f"{word} {unknown}{delay}\n".encode()) == error(
        f"E_{word}_FAILED {word} {unknown} failed ID not in flight"
    )
    assert not client.session.closing
    assert client.says(f"{word} short{delay}\n".encode()) == error("E_INVALID invalid message ID")
    assert client.session.closing


@pytest.mark.parametrize(
    ("command", "rdy"), [(b"RDY\n", 1), (b"RDY \n", 0), (b"RDY 2500\n", 2500), (b"RDY 007\n", 7)]
)
def test_rdy_takes_count_one_when_missing_and_none_when_empty(client, command, rdy):
    client.says(b"SUB t c\n")
    client.says(command)

    assert client.session.consumer.rdy == rdy


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (b"RDY 2501\n", "RDY count 2501 out of range 0-2500"),
        (b"RDY -1\n", "RDY could not parse count -1"),
        (b"RDY 18446744073709551615\n", "RDY count -1 out of range 0-2500"),
        (b"RDY " + b"9" * 5000 + b"\n", None),
    ],
)
def test_rdy_out_of_range_is_refused(client, command, text):
    client.says(b"SUB t c\n")
    answer = client.says(command)

    if text is None:
        assert answer[0][1].startswith(b"E_INVALID RDY count ")
    else:
        assert answer == error(f"E_INVALID {text}")


def test_requeue_clamps_its_delay(client):
    client.says(b"SUB t c\nRDY 1\nPUB t\n" + sized(b"1"))
    ((message_id, _, _),) = client.outlet.taken()

    assert client.says(b"REQ " + message_id + b" 999999999999\n") == []
    ((due_ns, _),) = client.session.consumer.channel.backlog.deferred
    assert due_ns == client.node.now_ns + 3_600_000_000_000


def test_run_of_fins_in_order_out_of_order_and_of_strangers(client):
    client.says(b"SUB t c\nRDY 100\nMPUB t\n" + mpub(*[b"%d" % n for n in range(10)]))
    ids = [message_id for message_id, _, _ in client.outlet.taken()]

    def fins(some):
        return b"".join(b"FIN " + message_id + b"\n" for message_id in some)

    assert client.says(fins(ids[:3])) == []
    assert client.says(fins([ids[5], ids[3], ids[4]])) == []
    answer = client.says(fins([ids[6], ids[0], ids[7]]) + b"NOP\n" + fins(ids[8:]))
    assert answer == error(f"E_FIN_FAILED FIN {ids[0].decode()} failed ID not in flight")
    assert client.session.consumer.channel.backlog.in_flight.count == 0
    assert client.session.consumer.finish_count == 10


@pytest.mark.parametrize("wish", ["snappy", "deflate"])
def test_commands_wait_for_granted_upgrade(client, wish):
    body = json.dumps({"feature_negotiation": True, wish: True}).encode()

    assert len(client.says(b"IDENTIFY\n" + sized(body) + b"NONSENSE\n")) == 1
    assert client.says(b"NONSENSE\n") == []
    assert [upgrade.value for upgrade in client.session.upgrading] == [wish]

    client.session.upgrade_done()
    assert client.says(b"PUB t\n" + sized(b"m")) == [(0, b"OK"), (0, b"OK")]
    assert client.session.upgrading == ()
    assert [upgrade.value for upgrade in client.session.upgraded] == [wish]


def test_upgrade_that_fails_is_said_and_ends_connection(client):
    client.says(b"IDENTIFY\n" + sized(b'{"feature_negotiation":true,"snappy":true}'))

    client.session.upgrade_failed("for a reason")

    assert client.says(b"NOP\n") == error("E_IDENTIFY_FAILED IDENTIFY failed for a reason")
    assert client.session.closing


@pytest.mark.parametrize(
    ("asked", "size", "timeout"),
    [
        ({"output_buffer_size": -1}, 1, 0),
        ({"output_buffer_timeout": -1}, 16384, 0),
        ({"output_buffer_size": 64}, 64, 250),
    ],
)
def test_identify_reports_output_buffer_as_the_original_does(client, asked, size, timeout):
    ((_, answer),) = client.says(
        b"IDENTIFY\n" + sized(json.dumps(asked | {"feature_negotiation": True}).encode())
    )

    assert (json.loads(answer)["output_buffer_size"], json.loads(answer)["output_buffer_timeout"]) == (
        size,
        timeout,
    )


def test_identify_without_negotiation_is_answered_ok(client):
    assert client.says(b"IDENTIFY\n" + sized(b"null")) == [(0, b"OK")]


def test_identify_takes_keys_in_any_case_and_the_last_of_equal_ones(client):
    client.says(b"IDENTIFY\n" + sized(b'{"Client_ID":"a","client_id":"b","unknown":[1],"hostname":null}'))

    assert (client.session.identity.client_id, client.session.identity.hostname) == ("b", "")


def test_subscription_without_heartbeats_is_refused(client):
    client.says(b"IDENTIFY\n" + sized(b'{"heartbeat_interval":-1}'))

    assert client.says(b"SUB t c\n") == error("E_INVALID cannot SUB with heartbeats disabled")


def test_overlong_line_ends_connection_without_word(client):
    assert client.says(b"PUB " + b"x" * 16_380) == []
    assert client.session.closing


@pytest.mark.parametrize(
    ("begun", "text"),
    [
        (b"PUB t\n\0", "E_BAD_MESSAGE PUB failed to read message body size"),
        (b"PUB t\n" + sized(b"hello")[:-1], "E_BAD_MESSAGE PUB failed to read message body"),
        (b"DPUB t 1\n" + sized(b"hello")[:-1], "E_BAD_MESSAGE DPUB failed to read message body"),
        (b"MPUB t\n\0", "E_BAD_BODY MPUB failed to read body size"),
        (b"IDENTIFY\n\0", "E_BAD_BODY IDENTIFY failed to read body size"),
        (b"IDENTIFY\n" + sized(b"{}")[:-1], "E_BAD_BODY IDENTIFY failed to read body"),
    ],
)
def test_stream_that_ends_inside_body_gets_commands_error(client, begun, text):
    assert client.says(begun) == []
    client.session.end_of_stream(client.node.now_ns)

    assert client.says(b"") == error(text)


def test_replies_are_errors_from_first_unstored_publish(client):
    other = client.node.topic("other")
    client.session.receive(
        b"PUB t\n" + sized(b"1") + b"MPUB other\n" + mpub(b"2") + b"PUB t\n" + sized(b"3"), client.node.now_ns
    )

    client.session.not_stored(other, "no space left on device")

    assert FrameParser().feed(client.session.take_replies()) == [
        (0, b"OK"),
        (1, b"E_MPUB_FAILED MPUB failed no space left on device"),
    ]
    assert client.session.closing


def test_publishing_to_topic_that_was_deleted_makes_it_anew(client):
    client.says(b"PUB t\n" + sized(b"1"))
    client.node.broker.delete_topic("t")

    assert client.says(b"PUB t\n" + sized(b"2")) == [(0, b"OK")]
    assert client.node.topic("t").message_count == 1


def test_session_keeps_long_reads_without_copying_them():
    node = Node()
    session, _ = node.session()
    session.receive(b"  V2", node.now_ns)
    reads = [b"PUB t\n" + (1_000_000).to_bytes(4) + b"x" * 50_000, *(bytes([n]) * 200_000 for n in range(3))]

    for read in reads:
        session.receive(read, node.now_ns)

    assert [id(piece) for piece in session._pieces] == [id(read) for read in reads]


def test_session_lets_others_have_their_turn_after_many_new_topics(node, client):
    count = 2 * MAX_NEW_TOPICS + 5
    pipeline = b"".join(b"PUB new%d\n" % number + sized(b"m") for number in range(count))

    client.session.receive(pipeline + b"NOP\n" + pipeline, node.now_ns)

    assert len(node.broker.topics) == MAX_NEW_TOPICS
    for made in (2 * MAX_NEW_TOPICS, count):
        assert client.session.is_blocked()
        client.session.resume(node.now_ns)
        assert len(node.broker.topics) == made
    assert not client.session.is_blocked()
    # Known topics are published to without a pause.
    assert client.session.take_replies() == OK * 2 * count


def test_commands_behind_new_topics_are_applied_before_end(node, client):
    pipeline = b"".join(b"PUB new%d\n" % number + sized(b"m") for number in range(MAX_NEW_TOPICS))
    client.session.receive(pipeline, node.now_ns)
    assert not client.session.is_blocked()
    client.session.receive(pipeline.replace(b"new", b"other") + b"PUB last\n" + sized(b"m"), node.now_ns)
    client.session.end_of_stream(node.now_ns)
    assert not client.session.closing

    client.session.resume(node.now_ns)

    assert client.session.closing
    assert "last" in node.broker.topics
