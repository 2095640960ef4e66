"""AMQP: confirms in any order count each message once; an acknowledgement covers all messages before it."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load import LoadError
from bench.peers.amqp import ACK, DELIVER, AmqpSession, DeliverFrames, frame, method, short
from tests.support.in_pieces import consumed, pieces

CUTS = st.lists(st.integers(0, 10_000), max_size=30)
NACK = (60, 120)


def message(tag, body):
    deliver = short(b"c") + struct.pack(">QB", tag, 0) + short(b"") + short(b"q")
    content = struct.pack(">HHQHB", 60, 0, len(body), 0x1000, 2)
    return method(1, DELIVER, deliver) + frame(2, 1, content) + frame(3, 1, body)


def confirm(tag, *, all_before=False):
    return method(1, ACK, struct.pack(">QB", tag, all_before))


def session():
    found = object.__new__(AmqpSession)
    found.in_order, found._rest, found._ahead = 0, b"", set()
    return found


@pytest.mark.parametrize("size", [None, 16])
@given(count=st.integers(1, 20), cuts=CUTS, data=st.data())
def test_the_last_whole_message_is_acknowledged_with_all_before_it(size, count, cuts, data):
    sizes = [size or data.draw(st.integers(8, 300)) for _ in range(count)]
    stream = b"".join(
        message(tag, tag.to_bytes(8, "big").ljust(one, b"\xce")) for tag, one in enumerate(sizes, 1)
    )

    answers, _, total, left = consumed(stream, cuts, DeliverFrames("q", size).cut)

    assert (total, left) == (count, b"")
    assert answers.endswith(confirm(count, all_before=True))


@given(st.integers(1, 20), CUTS)
def test_messages_of_one_size_show_their_first_bytes(count, cuts):
    stream = b"".join(message(tag, tag.to_bytes(8, "big") + b"\xce" * 8) for tag in range(1, count + 1))

    _, heads, _, _ = consumed(stream, cuts, DeliverFrames("q", 16).cut)

    assert heads == b"".join(tag.to_bytes(8, "big") for tag in range(1, count + 1))


@pytest.mark.parametrize("size", [None, 16])
def test_what_is_no_message_ends_the_load(size):
    with pytest.raises(LoadError):
        consumed(method(1, (20, 40), bytes(80)), [], DeliverFrames("q", size).cut)


def test_a_message_of_another_size_is_an_error_in_a_uniform_load():
    with pytest.raises(LoadError):
        consumed(message(1, b"x" * 17) + message(2, b"x" * 15), [], DeliverFrames("q", 16).cut)


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=60), CUTS)
def test_confirms_in_any_order_count_each_message_once(confirms, cuts):
    publisher = session()
    model = set()
    for tag, all_before in confirms:
        model |= set(range(1, tag + 1)) if all_before else {tag}
    stream = b"".join(confirm(tag, all_before=all_before) for tag, all_before in confirms)

    assert sum(publisher.feed(piece) for piece in pieces(stream, cuts)) == len(model)
    assert publisher.in_order == next(tag for tag in range(42) if tag + 1 not in model)


@pytest.mark.parametrize("name", [NACK, (20, 40), (10, 50)])
def test_a_refusal_ends_the_load(name):
    with pytest.raises(LoadError):
        session().feed(method(1, name, struct.pack(">QB", 1, 0)))


def test_heartbeats_are_no_answers():
    assert session().feed(frame(8, 0, b"") + confirm(1)) == 1
