"""The V1 parsers with any split of the stream, and with garbage."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from nsqclient.wire.errors import ProtocolError
from nsqcore.lookup_protocol import (
    MAGIC_V1,
    PING,
    Available,
    CommandParser,
    Identify,
    Ping,
    Register,
    ReplyParser,
    Unregister,
    encode_register,
    encode_reply,
    encode_unregister,
)

names = st.text("abc.-_09", min_size=1, max_size=8)
channels = st.none() | names
changes = st.one_of(
    st.just((PING, Ping())),
    st.tuples(names, channels).map(lambda pair: (encode_register(*pair), Register(*pair))),
    st.tuples(names, channels).map(lambda pair: (encode_unregister(*pair), Unregister(*pair))),
)
bodies = st.binary(max_size=40).map(
    lambda body: (b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body, Identify(body))
)


@st.composite
def conversations(draw):
    """Commands with at most one IDENTIFY among them, as pairs of bytes and record."""
    sent = draw(st.lists(changes, max_size=8))
    if draw(st.booleans()):
        sent.insert(draw(st.integers(0, len(sent))), draw(bodies))
    return sent


def pieces(data, cuts):
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@given(conversations(), st.lists(st.integers(min_value=0), max_size=12))
def test_any_split_of_stream_gives_the_same_commands(conversation, cuts):
    stream = MAGIC_V1 + b"".join(sent for sent, _ in conversation)
    parser = CommandParser()
    commands = []
    for piece in pieces(stream, cuts):
        parser.feed(piece)
        commands += iter(parser.next_command, None)

    assert commands == [record for _, record in conversation]


@given(st.lists(st.binary(max_size=30)), st.lists(st.integers(min_value=0), max_size=12))
def test_any_split_of_stream_gives_the_same_replies(payloads, cuts):
    parser = ReplyParser(30)
    replies = []
    for piece in pieces(b"".join(map(encode_reply, payloads)), cuts):
        parser.feed(piece)
        replies += iter(parser.next_reply, None)

    assert replies == payloads


@given(st.binary(max_size=200), st.lists(st.integers(min_value=0), max_size=6))
@example(b"AVAILABLE\n", [])
@example(b"UNAVAILABLE disk full\n", [3])
def test_garbage_gives_commands_or_protocol_error_and_nothing_else(garbage, cuts):
    parser = CommandParser()
    refusal = b"E_none"
    try:
        for piece in pieces(MAGIC_V1 + garbage, cuts):
            parser.feed(piece)
            while (command := parser.next_command()) is not None:
                assert isinstance(command, Identify | Ping | Register | Unregister | Available)
        parser.end_of_stream()
    except ProtocolError as error:
        refusal = error.payload()

    assert refusal.startswith(b"E_")
