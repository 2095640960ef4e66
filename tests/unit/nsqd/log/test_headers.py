import json
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient.wire.headers import parse_extended
from nsqd.log import headers
from nsqd.log.encoder import Batch, Encoder
from nsqd.log.frames import FRAME_OVERHEAD, parse_block
from nsqd.log.headers import BadHeaders, checked_extension, extension, join, message, other_kind, split
from nsqd.log.ids import MessageIds

NOW = 1_700_000_000_000_000_000
TEXT = st.text(st.characters(codec="utf-8"))
HEADERS = st.dictionaries(TEXT, TEXT, max_size=5)


def block_of(*messages, extended):
    """A block of messages, each given as (headers, body)."""
    bodies = [join(*one) if extended else one[1] for one in messages]
    return Encoder(MessageIds(1), 100).batch(Batch(bodies, has_headers=extended), NOW)


@given(HEADERS, st.binary())
def test_headers_and_body_come_back(given_headers, body):
    assert split(join(given_headers, body)) == (given_headers, body)


@given(HEADERS, st.binary())
def test_client_reads_what_is_stored(given_headers, body):
    assert parse_extended(join(given_headers, body)) == (given_headers, body)


def test_extension_is_laid_out_as_youzans():
    assert extension({"a": "b"}) == b'\x04\x00\x09{"a":"b"}'
    assert extension({}) == b"\x00"


def test_published_headers_are_stored_unchanged():
    assert checked_extension(b'{ "a" : "b" }') == b'\x04\x00\x0d{ "a" : "b" }'


@pytest.mark.parametrize(
    ("encoded", "why"),
    [
        (b"", "they are not JSON"),
        (b"{", "they are not JSON"),
        (b"\xff\xfe{\x00}\x00", "they are not JSON"),
        (b'{"a":"\xff"}', "they are not JSON"),
        (b"[" * 60_000, "they are not JSON"),
        (b"[]", "they are not a JSON object"),
        (b'"a"', "they are not a JSON object"),
        (b"null", "they are not a JSON object"),
        (b'{"a":1}', "names and values are strings"),
        (b'{"a":null}', "names and values are strings"),
        (b'{"a":{"b":"c"}}', "names and values are strings"),
        (b'{"a":NaN}', "names and values are strings"),
        (b'{"a":"\\ud800"}', "they are not Unicode"),
        (b'{"\\ud800":"a"}', "they are not Unicode"),
        (json.dumps({"a": "x" * (1 << 20)}).encode(), "1048585 bytes are above 65535"),
    ],
)
def test_invalid_headers_are_refused_with_sentence(encoded, why):
    with pytest.raises(BadHeaders) as refused:
        checked_extension(encoded)

    assert str(refused.value) == why


def test_headers_of_largest_size_are_accepted():
    most = {"a": "x" * (65_535 - len('{"a":""}'))}

    assert split(join(most, b"body")) == (most, b"body")
    with pytest.raises(BadHeaders, match="65536 bytes are above 65535"):
        join({"a": most["a"] + "x"}, b"body")


def test_names_and_values_are_strings():
    with pytest.raises(BadHeaders, match="names and values are strings"):
        extension({"a": 1})


@given(st.one_of(st.binary(max_size=30), HEADERS.map(lambda one: json.dumps(one).encode())), st.data())
def test_header_check_agrees_with_json(encoded, data):
    at = data.draw(st.integers(0, len(encoded)))
    changed = encoded[:at] + data.draw(st.binary(max_size=2)) + encoded[at:]
    try:
        fast = headers._STRINGS.decode(changed)
    except (msgspec.MsgspecError, ValueError):
        return
    assert fast == headers._parse_slowly(changed)


@pytest.mark.parametrize("cut", [b"", b"\x04", b"\x04\x00", b"\x04\x00\x05{}", b"\x05\x00\x02{}"])
def test_extension_that_is_not_whole_is_refused(cut):
    with pytest.raises(BadHeaders):
        split(cut)


def refused(look):
    try:
        look()
    except BadHeaders:
        return True
    return False


CHARACTERS = st.sampled_from([*b'{}":,\\ab1-_.un\n \x01\xc3\xa9'])
CHANGES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), CHARACTERS), max_size=3)


@given(HEADERS | st.just({"traceparent": "00-ab-cd-01"}), st.booleans(), CHANGES)
def test_headers_that_are_alike_are_checked_at_once_as_each_is(given_headers, ascii_only, changes):
    text = json.dumps(given_headers, ensure_ascii=ascii_only).encode()
    many = [bytearray(text) for _ in range(4)]
    for number, place, character in changes:
        many[number][place % len(text)] = character
    encoded = [bytes(one) for one in many]

    each = [refused(lambda one=one: headers.check(one)) for one in encoded]

    assert refused(lambda: headers.check_alike(encoded)) == any(each)


@pytest.mark.parametrize(
    "other",
    [
        b'{"a":"\\u00g9"}',  # characters of an escape are not plain ones
        b'{"a":"\\x00e9"}',
        b'x"a":"\\u00e9"}',
        b'{"a":"\\u00e9"x',
        b'{"a"x"\\u00e9"}',
    ],
)
def test_headers_that_differ_from_alike_ones_are_refused(other):
    with pytest.raises(BadHeaders):
        headers.check_alike([b'{"a":"\\u00e9"}', other])


MESSAGES = [({"n": "1"}, b"first"), ({}, b"second"), ({"traceparent": "00-ab"}, b"x" * 10_000), ({}, b"3")]


@given(st.lists(st.tuples(HEADERS, st.binary(min_size=1)), min_size=1, max_size=20), st.data())
def test_subscribers_of_both_kinds_get_either_kind_of_block(messages, data):
    start = data.draw(st.integers(0, len(messages) - 1))
    end = data.draw(st.integers(start + 1, len(messages)))
    extended, plain = block_of(*messages, extended=True), block_of(*messages, extended=False)
    bare = block_of(*[({}, body) for _, body in messages], extended=True)

    assert other_kind(extended, 100 + start, 100 + end) == plain.frames(100 + start, 100 + end)
    assert other_kind(plain, 100 + start, 100 + end) == bare.frames(100 + start, 100 + end)


@given(st.integers(1, 100), st.lists(st.integers(0, 99), max_size=3), st.data())
def test_messages_of_one_size_are_told_apart_all_the_same(count, odd, data):
    """All frames are equally long, but their headers are not."""
    messages = [({"a": "xy"}, b"12345") for _ in range(count)]
    for place in odd:
        if place < count:
            messages[place] = data.draw(st.sampled_from([({"a": "x"}, b"123456"), ({}, b"y" * 17)]))
    start = data.draw(st.integers(0, count - 1))
    end = data.draw(st.integers(start + 1, count))
    extended, plain = block_of(*messages, extended=True), block_of(*messages, extended=False)
    extended = parse_block(100, extended.data, has_headers=True)
    assert extended.stride
    bare = block_of(*[({}, body) for _, body in messages], extended=True)
    plain = parse_block(100, plain.data)

    assert other_kind(extended, 100 + start, 100 + end) == plain.frames(100 + start, 100 + end)
    assert other_kind(plain, 100 + start, 100 + end) == bare.frames(100 + start, 100 + end)


def test_long_bodies_are_sent_whole_to_both_kinds():
    extended, plain = block_of(*MESSAGES, extended=True), block_of(*MESSAGES, extended=False)

    assert other_kind(extended, 100, 104) == plain.data
    frames = other_kind(plain, 102, 103)
    assert frames[FRAME_OVERHEAD:] == b"\0" + b"x" * 10_000
    assert struct.unpack_from(">I", frames) == (len(frames) - 4,)


@pytest.mark.parametrize("extended", [True, False])
def test_message_is_taken_apart_whatever_block_it_lies_in(extended):
    block = block_of(*MESSAGES, extended=extended)
    block = parse_block(100, block.data, has_headers=extended)

    found = [message(block, seq) for seq in range(100, 104)]

    assert found == [(given_headers if extended else {}, body) for given_headers, body in MESSAGES]
