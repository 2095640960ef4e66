"""An MPUB of very many messages is checked and published in slices and answered once, all or nothing."""

import struct
from itertools import pairwise

import pytest

from nsqd.protocol.batch import SLICE_MESSAGES
from tests.support.engine import Client, Node
from tests.support.wire import sized

MANY = 5 * SLICE_MESSAGES + 7


def mpub(*bodies, topic=b"t"):
    return b"MPUB %b\n" % topic + sized(struct.pack(">I", len(bodies)) + b"".join(map(sized, bodies)))


@pytest.fixture
def node():
    return Node(max_msg_size=100)


@pytest.fixture
def client(node):
    return Client(node)


def rest(client):
    """All answers until the batch is done."""
    frames = []
    while client.session.is_blocked():
        frames += client.step()
    return frames


def published(node, topic="t"):
    return node.topic(topic).message_count


BODIES = [b"%d" % n for n in range(MANY)]


def test_long_batch_is_published_in_slices_and_answered_once(node, client):
    _, outlet = node.subscribe(node.channel(), rdy=2 * MANY)
    assert client.says(mpub(*BODIES)) == []
    counts = [published(node)]
    while client.session.is_blocked():
        answer = client.step()
        counts.append(published(node))

    assert answer == [(0, b"OK")]
    assert max(later - before for before, later in pairwise(counts)) == SLICE_MESSAGES
    node.turn()
    assert [body for _, _, body in outlet.taken()] == BODIES
    assert client.session.pub_counts == {"t": MANY}


def test_long_batch_is_checked_before_publishing(node, client):
    bad = [*BODIES[:-1], b"x" * 101]
    client.says(mpub(*bad))

    assert rest(client) == [(1, b"E_BAD_MESSAGE MPUB message too big 101 > 100")]
    assert client.session.closing
    assert published(node) == 0


def test_error_early_in_long_batch_is_immediate(client):
    assert client.says(mpub(b"", *BODIES)) == [(1, b"E_BAD_MESSAGE MPUB invalid message(0) body size 0")]


def test_commands_sent_behind_long_batch_wait_for_it(node, client):
    behind = b"PUB other\n" + sized(b"x")
    assert client.says(mpub(*BODIES) + behind) == []
    assert client.says(behind[:5]) == []
    client.step()
    assert client.says(behind[5:]) == []
    assert "other" not in node.broker.topics

    assert rest(client) == [(0, b"OK")] * 3
    assert published(node, "other") == 2


def test_long_batches_may_follow_one_another(node, client):
    client.says(mpub(*BODIES) + mpub(*BODIES))

    assert rest(client) == [(0, b"OK")] * 2
    assert published(node) == 2 * MANY


def test_long_batch_is_published_though_its_client_sends_no_more(node, client):
    client.says(mpub(*BODIES))
    client.session.end_of_stream(node.now_ns)
    assert not client.session.closing

    assert rest(client) == [(0, b"OK")]
    assert client.session.closing
    assert published(node) == MANY


def test_long_batch_that_is_cut_off_publishes_nothing(node, client):
    whole = mpub(*BODIES)
    # Its declared size is less than that of its messages, so it seems to be complete.
    short = b"MPUB t\n" + struct.pack(">I", len(whole) - 100) + whole[11:-20]
    assert client.says(short) == []
    assert rest(client) == []
    client.session.end_of_stream(node.now_ns)

    assert client.hears() + rest(client) == [(1, b"E_BAD_MESSAGE MPUB failed to read message body")]
    assert published(node) == 0


def test_long_batch_whose_rest_comes_late_is_published_whole(node, client):
    whole = mpub(*BODIES)
    late = b"MPUB t\n" + struct.pack(">I", len(whole) - 100) + whole[11:]
    assert client.says(late[:-20]) == []
    assert rest(client) == []
    assert client.says(late[-20:]) == []

    assert rest(client) == [(0, b"OK")]
    assert published(node) == MANY


def test_long_batch_ends_with_its_topic(node, client):
    client.says(mpub(*BODIES))
    while not published(node):
        client.step()
    node.broker.delete_topic("t")

    assert rest(client) == [(1, b"E_MPUB_FAILED MPUB failed exiting")]
    assert client.session.closing


def test_slice_that_cannot_be_stored_ends_batch_with_error(node, client):
    client.says(mpub(*BODIES))
    while not client.session.staged:
        client.session.resume(node.now_ns)
    client.session.not_stored(node.topic(), "no space left on device")

    assert client.hears() == [(1, b"E_MPUB_FAILED MPUB failed no space left on device")]
    assert not client.session.is_blocked()


def to_its_end(_node, client):
    rest(client)


def with_its_topic(node, client):
    client.step()
    node.topic()
    node.broker.delete_topic("t")
    rest(client)


def unstored(node, client):
    while not client.session.staged:
        client.session.resume(node.now_ns)
    client.session.not_stored(node.topic(), "no space left on device")


def with_its_client(_node, client):
    client.session.disconnect()


@pytest.mark.parametrize("end", [to_its_end, with_its_topic, unstored, with_its_client])
def test_node_is_not_at_rest_until_long_batch_has_ended_however_it_ends(node, client, end):
    client.says(mpub(*BODIES))
    client.step()
    assert not node.broker.is_idle

    end(node, client)

    node.turn()
    assert node.broker.is_idle


def test_long_batch_that_began_before_drain_is_published_whole(node, client):
    client.says(mpub(*BODIES))
    while not published(node):
        client.step()
    node.broker.draining = True

    assert rest(client) == [(0, b"OK")]
    assert published(node) == MANY


@pytest.mark.parametrize("declared", [1, 9, 15, 16, 17, 100])
def test_batch_of_one_message_ends_at_size_of_its_message(node, client, declared):
    node.channel()
    reader, outlet = node.subscribe(node.channel(), rdy=10)
    batch = struct.pack(">II", declared, 1) + sized(b"12345678")
    frames = client.says(b"MPUB t\n" + batch + b"PUB t\n" + sized(b"next"))

    assert [data for _, data in frames] == [b"OK", b"OK"]
    assert [body for _, _, body in outlet.taken()] == [b"12345678", b"next"]
    assert reader.in_flight == 2


@pytest.mark.parametrize("cut", range(24))
def test_batch_of_one_message_may_come_in_two_pieces(node, client, cut):
    _, outlet = node.subscribe(node.channel(), rdy=10)
    data = b"MPUB t\n" + mpub(b"12345").partition(b"\n")[2]

    assert client.says(data[:cut]) == []
    assert [answer for _, answer in client.says(data[cut:])] == [b"OK"]
    assert [body for _, _, body in outlet.taken()] == [b"12345"]
