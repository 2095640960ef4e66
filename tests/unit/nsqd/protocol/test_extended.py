import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient.wire.commands import mpub_ext, pub_ext
from nsqclient.wire.errors import ProtocolError
from nsqclient.wire.frames import FrameParser
from nsqd.log.encoder import Batch, Encoder
from nsqd.log.frames import FRAME_OVERHEAD
from nsqd.log.headers import split
from nsqd.log.ids import MessageIds
from nsqd.protocol.batch import read_batch
from nsqd.protocol.extended import MAX_ADDED_BYTES, batch, message
from tests.support.engine import Node

HEADERS = st.dictionaries(
    st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")), max_size=4
)
BODY = st.binary(min_size=1, max_size=6000)


def said(encoded, body):
    return struct.pack(">H", len(encoded)) + encoded + body


@given(HEADERS, BODY)
def test_published_message_is_split_into_headers_and_body(headers, body):
    data = pub_ext("t", body, headers)
    start = data.index(b"\n") + 5

    extension, found = message(data, start, len(data), 1 << 20)

    assert split(extension + bytes(found)) == (headers, body)


@given(HEADERS, st.lists(BODY, min_size=1, max_size=5))
def test_batch_of_client_is_taken_apart(headers, bodies):
    data = mpub_ext("t", bodies, headers)
    start = data.index(b"\n") + 5

    found, end = read_batch(data, start, max_msg_size=1 << 20, max_body_size=1 << 22, extended=True)

    assert end == len(data)
    assert found.has_headers
    assert [split(one) for one in found.bodies] == [(headers, body) for body in bodies]
    assert found.size - found.extension_bytes == sum(map(len, bodies))


# Before, at and behind each sequence at which more than the last digits of an id change.
FIRSTS = [0x1_0000 - 20, 0xFFF0 - 40, 0x1000 - 1, 0x1000 - 40, 0x2000 - 1100, 0x7F00]


@pytest.mark.parametrize("first", FIRSTS)
@pytest.mark.parametrize("count", [32, 40, 1024])
@pytest.mark.parametrize("extended", [True, False])
def test_batch_of_one_size_is_encoded_as_its_messages_are(first, count, extended):
    head = (b'{"a":"%04d"}', b"") if extended else (b"", b"")
    said_ = said if extended else lambda _, body: body
    messages = [said_(head[0] % n if extended else b"", b"body%04d" % n) for n in range(count)]
    payload = struct.pack(">I", count) + b"".join(struct.pack(">I", len(one)) + one for one in messages)
    found, _ = read_batch(payload, 0, max_msg_size=1 << 20, max_body_size=1 << 22, extended=extended)
    assert found.stride
    bodies = Batch(list(found.bodies), has_headers=extended)

    at_once = Encoder(MessageIds(617), first).batch(found, 7)
    each = Encoder(MessageIds(617), first).batch(bodies, 7)

    assert at_once.data == each.data
    assert (at_once.first, at_once.next, at_once.has_headers) == (each.first, each.next, extended)
    assert at_once.stride == len(each.data) // count


def test_message_of_batch_may_have_no_headers():
    found = batch([said(b"", b"1"), said(b'{"a":"b"}', b"2")], 100)

    assert list(found.bodies) == [b"\x001", b'\x04\x00\x09{"a":"b"}2']
    assert found.extension_bytes == 1 + 3 + 9


def test_limit_is_that_of_body():
    data = said(b"x" * (MAX_ADDED_BYTES - 2), b"m" * 11)
    with pytest.raises(ProtocolError, match="E_BAD_MESSAGE PUB_EXT message too big 11 > 10"):
        message(data, 0, len(data), 10)
    data = said(b"{}", b"m" * 10)

    assert message(data, 0, len(data), 10) == (b"\x04\x00\x02{}", b"m" * 10)


@given(st.binary(max_size=40))
def test_whatever_is_sent_is_taken_or_refused(data):
    try:
        extension, body = message(data, 0, len(data), 100)
    except ProtocolError:
        return
    assert extension[1:] + bytes(body) in (data, data[2:])
    split(extension + bytes(body))


@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        (pub_ext("t", b"m", {"a": "b"}), b"E_PUB_FAILED PUB failed draining"),
        (mpub_ext("t", [b"m"], {"a": "b"}), b"E_MPUB_FAILED MPUB failed draining"),
    ],
)
def test_node_that_drains_refuses_them_as_it_does_plain_commands(command, refusal):
    node = Node()
    node.broker.draining = True
    session, _ = node.session()

    session.receive(b"  V2" + command, node.now_ns)

    assert FrameParser().feed(session.take_replies()) == [(1, refusal)]
    assert session.closing
    assert not node.broker.topics


def test_extended_batch_of_one_size_equals_single_messages():
    node = Node()
    session, _ = node.session()
    alike = [said(b'{"n":"%03d"}' % n, b"body%03d" % n) for n in range(40)]
    odd = [*alike[:39], said(b'{"n":"1"}', b"body00039")]
    for messages in (alike, odd):
        packed = struct.pack(">I", len(messages)) + b"".join(struct.pack(">I", len(m)) + m for m in messages)
        session.receive(
            (b"" if session.started else b"  V2") + b"MPUB_EXT t\n" + struct.pack(">I", len(packed)) + packed,
            node.now_ns,
        )

    blocks = node.topic().staged()

    assert [[split(one) for one in bodies_of(block)] for block in blocks] == [
        [({"n": f"{n:03}"}, b"body%03d" % n) for n in range(40)],
        [*[({"n": f"{n:03}"}, b"body%03d" % n) for n in range(39)], ({"n": "1"}, b"body00039")],
    ]


def bodies_of(block):
    return [block.frames(seq, seq + 1)[FRAME_OVERHEAD:] for seq in range(block.first, block.next)]


@pytest.mark.parametrize("place", [0, 17, 39])
def test_bad_headers_among_messages_of_one_size_are_found(place):
    messages = [said(b'{"n":"%03d"}' % n, b"m") for n in range(40)]
    messages[place] = said(b'{"n":12345}', b"m")
    packed = struct.pack(">I", 40) + b"".join(struct.pack(">I", len(one)) + one for one in messages)

    with pytest.raises(ProtocolError, match="MPUB_EXT invalid headers: names and values are strings"):
        read_batch(packed, 0, max_msg_size=100, max_body_size=1 << 20, extended=True)
