"""Frames as nsqd sends them."""

import pytest

from nsqclient.wire.frames import (
    FRAME_MESSAGE,
    FRAME_RESPONSE,
    FrameError,
    FrameParser,
    decode_error,
    encode_frame,
)
from nsqclient.wire.message import MessageRecord


def test_frame_counts_its_type_into_size():
    assert encode_frame(FRAME_RESPONSE, b"OK") == b"\x00\x00\x00\x06\x00\x00\x00\x00OK"


def test_message_frame_is_read_into_its_parts():
    data = b"\x00\x00\x00\x00\x00\x00\x00\x07\x00\x020123456789abcdefhello"

    [(frame_type, received)] = FrameParser().feed(encode_frame(FRAME_MESSAGE, data))

    assert frame_type == FRAME_MESSAGE
    assert MessageRecord.decode(received) == MessageRecord(7, 2, b"0123456789abcdef", b"hello")


@pytest.mark.parametrize("size", [b"\x00\x00\x00\x03", b"HTTP", b"\xff\xff\xff\xff"])
def test_size_no_frame_can_have_is_refused(size):
    with pytest.raises(FrameError, match="out of range"):
        FrameParser().feed(size + b"/1.1")


@pytest.mark.parametrize("size", [0, 3, 1001, 2**32 - 1])
def test_size_out_of_range_is_refused_before_frame_is_whole(size):
    with pytest.raises(FrameError, match="out of range 4-1000"):
        FrameParser(1000).feed_run(size.to_bytes(4) + bytes(4), 0, [], [])


def test_message_frame_shorter_than_its_header_is_refused():
    with pytest.raises(FrameError, match="shorter than its header"):
        FrameParser(message=lambda *parts: parts).feed_run(encode_frame(FRAME_MESSAGE, bytes(25)), 0, [], [])


def test_error_frame_becomes_error_it_names():
    error = decode_error(b'E_BAD_TOPIC PUB topic name "a b" is not valid')

    assert (error.code, error.text, error.fatal) == ("E_BAD_TOPIC", 'PUB topic name "a b" is not valid', True)


def test_error_without_sentence_keeps_its_code():
    assert (decode_error(b"E_BAD_PROTOCOL").code, decode_error(b"E_BAD_PROTOCOL").text) == (
        "E_BAD_PROTOCOL",
        "",
    )


@pytest.mark.parametrize("code", [b"E_FIN_FAILED", b"E_REQ_FAILED", b"E_TOUCH_FAILED"])
def test_three_errors_leave_connection_open(code):
    assert not decode_error(code + b" because").fatal


def test_bytes_that_are_no_text_survive_in_error():
    assert decode_error(b"E_INVALID invalid command \xff").payload() == b"E_INVALID invalid command \xff"
