"""Long messages that are received in their place are published as any others."""

import pytest

from nsqd.protocol.long_body import MIN_BODY, begun_body
from tests.support.engine import Client, Node, bodies
from tests.support.wire import batch, sized

SIZE = 4 * MIN_BODY
BODY = bytes(range(256)) * (SIZE // 256)
PUB = b"PUB t\n" + sized(BODY)
MPUB = b"MPUB t\n" + sized(batch(BODY))
# So much of a command has arrived when its message is received in its place.
BEGUN = SIZE // 2


class Publisher(Client):
    """A publisher whose long messages are received in their place, and a consumer of its topic."""

    def __init__(self):
        super().__init__(Node(max_msg_size=SIZE, max_body_size=2 * SIZE))
        consumer, self.outlet = self.node.session()
        consumer.receive(b"  V2SUB t c\nRDY 10\n", self.node.now_ns)
        first, second = b"PUB t\n" + sized(b"first"), b"MPUB t\n" + sized(batch(b"second"))
        assert self.says(first + second) == [(0, b"OK")] * 2
        assert bodies(self.outlet) == [b"first", b"second"]

    def begin(self, command, *, reads=1):
        for read in range(reads):
            self.session.receive(command[read * BEGUN // reads : (read + 1) * BEGUN // reads], 0)
        assert self.session.begin_body()
        return self.session.body

    def end(self, body, command):
        rest = command[BEGUN:]
        assert body.missing == len(rest)
        while body.missing:
            room = body.room()[:10_000]
            room[:] = rest[: len(room)]
            rest = rest[len(room) :]
            body.received(len(room))
        self.session.end_body(self.node.now_ns)


@pytest.fixture
def client():
    return Publisher()


@pytest.mark.parametrize("command", [PUB, MPUB])
@pytest.mark.parametrize("reads", [1, 3])
def test_long_body_is_published_as_it_was_sent(client, command, reads):
    client.end(client.begin(command, reads=reads), command)

    assert client.hears() == [(0, b"OK")]
    assert bodies(client.outlet) == [BODY]
    assert client.session.pub_counts == {"t": 3}


def test_long_body_keeps_its_place_among_other_messages(client):
    client.session.receive(b"PUB t\n" + sized(b"before"), 0)
    client.end(client.begin(PUB), PUB)
    client.session.receive(b"PUB t\n" + sized(b"behind"), 0)

    assert client.hears() == [(0, b"OK")] * 3
    assert bodies(client.outlet) == [b"before", BODY, b"behind"]


def test_long_body_whose_rest_is_received_elsewhere_is_published(client):
    client.begin(PUB)
    client.session.receive(PUB[BEGUN : BEGUN + 1000], 0)
    client.session.receive(PUB[BEGUN + 1000 :] + b"PUB t\n" + sized(b"behind"), 0)

    assert client.hears() == [(0, b"OK")] * 2
    assert bodies(client.outlet) == [BODY, b"behind"]


def test_long_body_behind_another_needs_no_part_of_it(client):
    assert not client.session.begin_body(b"PUB t\n")
    assert client.session.begin_body(b"PUB t\n" + SIZE.to_bytes(4))
    assert client.session.body.missing == SIZE


@pytest.mark.parametrize(
    "change",
    [
        lambda client: client.session.forget_publish_lines(),
        lambda client: client.node.broker.delete_topic("t"),
    ],
)
def test_long_body_whose_line_is_read_again_is_published(client, change):
    body = client.begin(PUB)
    change(client)
    client.end(body, PUB)

    assert client.hears() == [(0, b"OK")]
    assert client.node.topic("t").log.next_seq > 0
    assert client.node.topic("t").message_bytes >= SIZE


def test_long_body_that_drain_refuses_gets_its_error(client):
    body = client.begin(PUB)
    client.node.broker.draining = True
    client.session.forget_publish_lines()
    client.end(body, PUB)

    assert client.hears()[0][1].startswith(b"E_PUB_FAILED")


@pytest.mark.parametrize("word", ["PUB", "MPUB"])
def test_stream_that_ends_inside_long_body_gets_error_of_its_command(client, word):
    client.begin({"PUB": PUB, "MPUB": MPUB}[word])
    client.session.end_of_stream(client.node.now_ns)

    assert client.hears() == [(1, b"E_BAD_MESSAGE %b failed to read message body" % word.encode())]
    assert bodies(client.outlet) == []


def test_publisher_of_long_body_is_not_idle(client):
    assert client.session.is_idle_publisher

    client.begin(PUB)

    assert not client.session.is_idle_publisher


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(PUB[:6], id="no size"),
        pytest.param(MPUB[:14], id="no size of the message"),
        pytest.param(b"PUB t\n" + (SIZE + 1).to_bytes(4) + BODY[:BEGUN], id="too long"),
        pytest.param(b"PUB t\n" + (MIN_BODY - 1).to_bytes(4) + BODY[:10_000], id="too short"),
        pytest.param(PUB[:1000], id="too little of it"),
        pytest.param(PUB[:-1000], id="nearly all of it"),
        pytest.param(b"MPUB t\n" + sized(batch(BODY, b"x"))[:BEGUN], id="several messages"),
        pytest.param(b"MPUB t\n" + sized(batch(BODY) + b"x")[:BEGUN], id="sizes that disagree"),
        pytest.param(b"DPUB t 1\n" + sized(BODY)[:BEGUN], id="deferred"),
    ],
)
def test_other_commands_are_not_received_in_place(begun):
    assert begun_body([begun], SIZE, trusted=False) is None


def test_line_that_was_not_read_before_is_not_received_in_place(client):
    client.session.receive(PUB.replace(b" t", b" u")[:BEGUN], 0)

    assert not client.session.begin_body()
