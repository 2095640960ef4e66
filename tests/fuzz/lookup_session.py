"""Any bytes of the V1 protocol, whole or in any split, get the same replies and leave the same registry.

After an error nothing more is sent. Once the connection has ended, no lookup finds anything of it, however
small the steps in which it is forgotten, and other peers are unchanged.
"""

import struct

from hypothesis import given
from hypothesis import strategies as st

from nsqclient.wire.errors import ProtocolError
from nsqcore.lookup_protocol import MAGIC_V1, CommandParser
from nsqlookupd.registry import Key, Registry
from nsqlookupd.session import NsqdSession

INFO = b'{"broadcast_address":"a","tcp_port":1,"http_port":2,"version":"1"}'
OTHER = INFO.replace(b'"a"', b'"other"')


def identify(body: bytes) -> bytes:
    return b"IDENTIFY\n" + struct.pack(">i", len(body)) + body


names = st.sampled_from([b"t", b"u", b"e#ephemeral", b"", b"$", b"t" * 65, b"\xff", b"c"])
words = st.sampled_from([b"REGISTER", b"UNREGISTER", b"PING", b"NOP", b"", b"register"])
commands = st.one_of(
    st.tuples(words, names, names).map(lambda of: b"%b %b %b\n" % of),
    st.tuples(words, names).map(lambda of: b"%b %b\r\n" % of),
    st.sampled_from(
        [
            identify(INFO),
            identify(b"{}"),
            identify(b""),
            b"IDENTIFY\n\xff\xff\xff\xff",
            b"PING\n",
            b"AVAILABLE\n",
            b"UNAVAILABLE disk full\n",
        ]
    ),
    st.binary(max_size=30),
)
streams = st.tuples(
    st.sampled_from([MAGIC_V1, MAGIC_V1, MAGIC_V1, b"", b"  V2"]),
    st.sampled_from([identify(INFO), identify(INFO), b""]),
    st.lists(commands, max_size=14).map(b"".join),
).map(b"".join)

Known = list[tuple[Key, list[str]]]


def known(registry: Registry) -> Known:
    return [(key, sorted(peer.id for peer, _ in peers)) for key, peers in registry.entries()]


def outcome(pieces: list[bytes], at_once: int) -> tuple[list[bytes], Known]:
    registry = Registry(300, 45)
    other = NsqdSession(registry, b"{}", "other")
    stays = CommandParser()
    stays.feed(MAGIC_V1 + identify(OTHER) + b"REGISTER t c\nREGISTER e#ephemeral c\n")
    while (command := stays.next_command()) is not None:
        other.handle(command, 0)
    before = known(registry)

    session, parser = NsqdSession(registry, b"{}", "fuzzed"), CommandParser()
    replies: list[bytes] = []
    try:
        for piece in pieces:
            parser.feed(piece)
            while (command := parser.next_command()) is not None:
                replies.append(session.handle(command, 0).payload)
        parser.end_of_stream()
    except ProtocolError as error:
        replies.append(error.payload())
    found = known(registry)

    session.close(0)
    assert known(registry) == before
    while session.forget(at_once):
        assert known(registry) == before
    assert registry.counts()["peers"] == 1
    return replies, found


@given(streams, st.lists(st.integers(0, 400), max_size=6), st.integers(1, 9))
def fuzz(stream: bytes, cuts: list[int], at_once: int) -> None:
    places = sorted({min(cut, len(stream)) for cut in cuts})
    pieces = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]

    assert outcome(pieces, at_once) == outcome([stream], 9)
