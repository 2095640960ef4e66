"""Headers of messages, in the frames of youzan's NSQ."""

import pytest

from nsqclient.wire import commands
from nsqclient.wire.frames import FrameError
from nsqclient.wire.headers import encode_headers, parse_extended


def test_publish_with_headers_is_their_length_their_json_and_body():
    command = commands.pub_ext("t", b"body", {"a": "ü"})

    json = '{"a": "ü"}'.encode()
    assert (
        command == b"PUB_EXT t\n" + (2 + len(json) + 4).to_bytes(4) + len(json).to_bytes(2) + json + b"body"
    )


def test_batch_has_headers_on_each_message():
    command = commands.mpub_ext("t", [b"1", b"22"], {})

    first, second = b"\0\x02{}1", b"\0\x02{}22"
    messages = len(first).to_bytes(4) + first + len(second).to_bytes(4) + second
    assert command == b"MPUB_EXT t\n" + (4 + len(messages)).to_bytes(4) + (2).to_bytes(4) + messages


def test_headers_survive_encoding():
    headers = {"traceparent": "00-1-2-01", "k": 'v"\n'}

    assert parse_extended(b"\x04" + encode_headers(headers) + b"body") == (headers, b"body")
    assert parse_extended(b"\0body") == ({}, b"body")


def test_values_of_other_kinds_are_read_as_their_json():
    assert parse_extended(b'\x04\0\x0d{"n":1,"x":{}}'.replace(b"\x0d", b"\x0e"))[0] == {"n": "1", "x": "{}"}


@pytest.mark.parametrize(
    "data", [b"", b"\x02\x03tagbody", b"\x04", b"\x04\0\x09{}", b"\x04\0\x02[]x", b"\x04\0\x02{x", b"\x07"]
)
def test_malformed_headers_are_refused(data):
    with pytest.raises(FrameError):
        parse_extended(data)


def test_headers_that_are_too_large_or_no_text_are_refused():
    with pytest.raises(ValueError, match="above 65535"):
        encode_headers({"a": "x" * 65_536})
    with pytest.raises(TypeError, match="are text"):
        encode_headers({"a": 1})
