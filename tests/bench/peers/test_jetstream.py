"""NATS: every message is acknowledged once, wherever the stream is cut; a status is not a message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load import LoadError
from bench.peers.jetstream import AT_ONCE, JetSession, PulledMessages
from tests.support.in_pieces import consumed, pieces

CUTS = st.lists(st.integers(0, 10_000), max_size=30)


def ack(number):
    return b"$JS.ACK.q.c.1.%d.%d.17000.%d" % (number, number, 1000 - number)


def message(number, body):
    return b"MSG q 1 %b %d\r\n%b\r\n" % (ack(number), len(body), body)


def acknowledgements(count):
    return b"".join(b"PUB %b 0\r\n\r\n" % ack(number) for number in range(count))


def session():
    found = object.__new__(JetSession)
    found.in_order, found._rest = 0, b""
    return found


@given(st.lists(st.integers(8, 400), min_size=1, max_size=20), CUTS)
def test_mixed_messages_are_each_acknowledged_once_for_any_split(sizes, cuts):
    stream = b"".join(message(number, b"x" * size) for number, size in enumerate(sizes))

    answers, heads, total, left = consumed(stream, cuts, PulledMessages("q", None).cut)

    assert answers == acknowledgements(len(sizes))
    assert (heads, total, left) == (b"x" * 8 * len(sizes), len(sizes), b"")


@given(st.integers(1, 20), CUTS)
def test_messages_of_one_size_show_their_first_bytes(count, cuts):
    stream = b"".join(message(number, number.to_bytes(8, "big") + b"\r\n" * 4) for number in range(count))

    answers, heads, total, _ = consumed(b"PING\r\n" + stream, cuts, PulledMessages("q", 16).cut)

    assert answers == acknowledgements(count)
    assert (heads, total) == (b"".join(number.to_bytes(8, "big") for number in range(count)), count)


def test_more_are_asked_for_when_a_batch_has_come():
    found = PulledMessages("q", 8)
    stream = b"".join(message(number, b"x" * 8) for number in range(AT_ONCE))

    answers, _, _, _ = consumed(stream, [], found.cut)

    assert answers == acknowledgements(AT_ONCE) + found.ask


@pytest.mark.parametrize("said", [b"HMSG _I.1 1 28 28\r\nNATS/1.0 409 no\r\n\r\n\r\n", b"-ERR 'no'\r\n"])
def test_a_refusal_ends_the_load(said):
    with pytest.raises(LoadError, match="no"):
        consumed(said, [], PulledMessages("q", 8).cut)
    with pytest.raises(LoadError, match="no"):
        session().feed(said)


@given(st.integers(1, 50), CUTS)
def test_an_answer_is_counted_once_for_any_split(count, cuts):
    publisher = session()
    stream = b"PING\r\n" + b"".join(
        b'MSG _I.1 1 24\r\n{"stream":"q", "seq":%d}\r\n' % number for number in range(count)
    )

    assert sum(publisher.feed(piece) for piece in pieces(stream, cuts)) == count
    assert publisher.in_order == count
