"""Headers are read from in front of the bodies and written there, whatever the messages are."""

import json
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, MapType, StringType, StructType

from nsqclient.wire.frames import FRAME_MESSAGE, FrameError, encode_frame
from nsqclient.wire.headers import encode_headers
from nsqclient.wire.message import MessageRecord
from nsqd.protocol.batch import read_batch
from pyspark_nsq.sink.outgoing import Outgoing, check_columns, outgoing
from pyspark_nsq.source.columns import (
    MessageColumns,
    Origin,
)
from pyspark_nsq.source.errors import OptionError, SourceError
from pyspark_nsq.source.frames import decode_frames
from pyspark_nsq.source.headers import HEADERS_TYPE, as_json, as_maps
from pyspark_nsq.source.json_columns import JsonColumns
from pyspark_nsq.source.schema import SCHEMA_WITH_HEADERS

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
messages = st.lists(st.tuples(st.dictionaries(texts, texts, max_size=3), st.binary(max_size=30)), max_size=20)


def frame_of(number, extended):
    return encode_frame(FRAME_MESSAGE, MessageRecord(number, 1, b"%016x" % number, extended).encode())


def frames_of(found):
    return b"".join(frame_of(n, with_extension(*one)) for n, one in enumerate(found))


def with_extension(headers, body):
    if not headers:
        return b"\0" + body
    text = json.dumps(headers).encode()
    return b"\4" + len(text).to_bytes(2, "big") + text + body


def stored(one):
    """The headers and bodies that nsqd would store for a request."""
    batch, end = read_batch(one.content, 0, max_msg_size=1 << 20, max_body_size=5 << 20, extended=True)
    assert end == len(one.content)
    frames = b"".join(frame_of(n, bytes(body)) for n, body in enumerate(batch.bodies))
    found = decode_frames(frames, extended=True)
    return [(dict(headers), body) for headers, body in zip(*columns_of(found), strict=True)]


def columns_of(found):
    return found.headers.to_pylist(), found.bodies.to_pylist()


@settings(deadline=None)  # the first call loads modules, which takes long
@given(messages)
def test_message_has_its_own_headers_and_body(found):
    headers, bodies = columns_of(decode_frames(frames_of(found), extended=True))

    assert [(dict(one), body) for one, body in zip(headers, bodies, strict=True)] == found


@settings(deadline=None)
@given(messages, st.integers(1, 300))
def test_published_headers_round_trip(found, most):
    # nsqd refuses messages without a body.
    found = [one for one in found if one[1]]
    headers = pa.array([headers for headers, _ in found], pa.map_(pa.string(), pa.string()))
    bodies = pa.array([body for _, body in found], pa.binary())
    sent = list(outgoing(pa.record_batch({"body": bodies, "headers": headers}), "t", most))

    some = any(headers for headers, _ in found)
    assert {one.extended for one in sent} <= {some}
    if some:
        assert [message for one in sent for message in stored(one)] == found


def test_row_has_headers_on_request():
    found = decode_frames(frames_of([({"a": "b"}, b"1"), ({}, b"2")]), extended=True)
    (batch,) = MessageColumns(("headers", "body")).batches(found, Origin("t", "", "n:1"))

    assert batch.to_pylist() == [
        {"headers": [("a", "b")], "body": b"1"},
        {"headers": [], "body": b"2"},
    ]
    schema = StructType().add("order", "long").add(SCHEMA_WITH_HEADERS["headers"])
    found = decode_frames(frames_of([({"a": "b"}, b'{"order": 7}')]), extended=True)
    (batch,) = JsonColumns(schema, headers=True).batches(found, Origin("t", "", "n:1"))
    assert batch.to_pylist() == [{"order": 7, "headers": [("a", "b")]}]
    assert MessageColumns(("headers",)).has_headers
    assert not MessageColumns().has_headers
    assert MessageColumns.all(headers=True).has_headers


WRONG = {
    b"": "there is no room for headers before a body",
    b"{}": "before a body there are no headers of a kind that is known",
    b"\4\0": "the headers of a message are cut off",
    b"\4\0\3{}": "the headers of a message are cut off",
    b"\4\0\2[]": "headers are no JSON object of strings",
    b'\4\0\7{"a":1}': "headers are no JSON object of strings",
    b"\4\0\2\xff\xff": "headers are no JSON object of strings",
}


@pytest.mark.parametrize(("extended", "sentence"), WRONG.items())
def test_invalid_extension_is_refused(extended, sentence):
    with pytest.raises(FrameError, match=sentence):
        decode_frames(frame_of(0, b"\0one") + frame_of(1, extended), extended=True)


def test_damaged_extensions_are_refused_or_give_messages():
    draw = random.Random(5)
    frames = frames_of([({"k": "v" * n}, b"body") for n in range(20)])
    for _ in range(300):
        damaged = bytearray(frames)
        damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            found = decode_frames(bytes(damaged), extended=True)
        except FrameError:
            continue
        assert len(found.headers) == len(found.bodies) == len(found.sequences)


def test_deferred_message_with_headers_is_sent_by_itself():
    headers = pa.array([{"a": "b"}, None], pa.map_(pa.string(), pa.string()))
    sent = list(
        outgoing(pa.record_batch({"body": [b"1", b"2"], "defer_ms": [500, 700], "headers": headers}), "t", 99)
    )

    assert [(one.defer_ms, one.extended, stored(one)) for one in sent] == [
        (500, True, [({"a": "b"}, b"1")]),
        (700, True, [({}, b"2")]),
    ]


def test_rows_without_headers_need_no_extended_request():
    headers = pa.array([{}, None], pa.map_(pa.string(), pa.string()))
    (one,) = outgoing(pa.record_batch({"body": [b"1", b"2"], "headers": headers}), "t", 99)

    assert one == Outgoing("t", b"\0\0\0\2" + b"\0\0\0\1" + b"1" + b"\0\0\0\1" + b"2", 2)


keys = st.sampled_from(["dedup-id", "a", 'quoted "b"', "ä\n"])


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.none() | st.dictionaries(keys, texts, max_size=3), st.none() | texts), max_size=12),
    st.integers(0, 3),
)
def test_headers_and_id_become_one_json_object(found, begin):
    maps = pa.array([headers and list(headers.items()) for headers, _ in found], HEADERS_TYPE).slice(begin)
    ids = pa.array([known for _, known in found], pa.string()).slice(begin)
    expected = [headers or {} for headers, _ in found[begin:]]
    marked = [
        one if known is None else {**one, "dedup-id": known}
        for one, (_, known) in zip(expected, found[begin:], strict=True)
    ]

    def read(texts):
        # A text with an escape too few, or with a name twice, is no such object.
        pairs = [json.loads(text, object_pairs_hook=list) if text else [] for text in texts.to_pylist()]
        assert [len(dict(one)) for one in pairs] == [len(one) for one in pairs]
        return [dict(one) for one in pairs]

    assert read(as_json(maps)) == expected
    assert read(as_json(maps, ids)) == marked


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ({"a": None}, "the header 'a' is null in a row of the column headers; values are strings"),
        ({"a": "x" * 70_000}, "the headers of a row are 70008 bytes of JSON, above the 65535 of nsqd"),
    ],
)
def test_headers_that_nsqd_refuses_are_named(headers, sentence):
    with pytest.raises(SourceError, match=sentence):
        as_json(pa.array([headers], pa.map_(pa.string(), pa.string())))


def test_map_of_other_types_is_no_column_of_headers():
    schema = StructType().add("body", "binary").add("headers", MapType(StringType(), IntegerType()))
    sentence = "the column headers is map<string,int>; it must be map<string,string>"

    with pytest.raises(OptionError, match=sentence):
        check_columns(schema, "t")


def test_headers_of_client_are_read():
    text = encode_headers({"ä": "\u2028", "b": ""})[2:]

    assert as_maps(pa.array([text, b""], pa.binary())).to_pylist() == [[("ä", "\u2028"), ("b", "")], []]
