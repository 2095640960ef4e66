"""NSQ: an OK for a batch counts once, and the first bytes of the bodies are found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load import OK_FRAME, LoadError
from bench.peers.nsq import NsqSession, heads
from tests.bench.test_load import frame
from tests.support.in_pieces import pieces


def session():
    found = object.__new__(NsqSession)
    found.in_order, found._rest = 0, b""
    return found


@given(st.integers(1, 50), st.lists(st.integers(0, 1000)))
def test_an_answer_is_counted_once_for_any_split(count, cuts):
    publisher = session()

    assert sum(publisher.feed(piece) for piece in pieces(OK_FRAME * count, cuts)) == count
    assert publisher.in_order == count


def test_another_answer_than_ok_ends_the_load():
    with pytest.raises(LoadError, match="expected OK"):
        session().feed(OK_FRAME + b"\x00\x00\x00\x06\x00\x00\x00\x01E")


@given(st.lists(st.binary(min_size=8, max_size=8), min_size=1, max_size=30))
def test_the_first_bytes_of_bodies_are_found(first):
    stream = bytearray(b"".join(frame(number, head + b"rest") for number, head in enumerate(first)))

    assert heads(stream, len(stream), 12) == b"".join(first)
