"""The load generator counts and finishes exactly the messages it was sent, wherever the stream is cut."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load import LoadError, cut_mixed, cut_uniform, encode_mpub, encode_pub


def frame(number: int, body: bytes, kind: int = 2) -> bytes:
    return struct.pack(">IIQH", 30 + len(body), kind, 1, 1) + b"%016x" % number + body


def finish_all(stream: bytes, cuts: list[int], size: int | None) -> bytes:
    """Feed the stream in pieces that end at *cuts*, as a consumer would read it; return all FINs."""
    data = bytearray(1 << 16)
    have, fins = 0, b""
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    for begin, end in itertools.pairwise(edges):
        data[have : have + end - begin] = stream[begin:end]
        have += end - begin
        used, more = cut_mixed(data, have) if size is None else cut_uniform(data, have, size)
        data[: have - used] = data[used:have]
        have -= used
        fins += more
    assert have == 0
    return fins


def fins_for(count: int) -> bytes:
    return b"".join(b"FIN %016x\n" % number for number in range(count))


@given(st.integers(1, 300), st.integers(1, 20), st.lists(st.integers(0, 10_000)))
def test_uniform_messages_are_each_finished_once_for_any_split(size, count, cuts):
    stream = b"".join(frame(number, b"\x00" * size) for number in range(count))

    assert finish_all(stream, cuts, size) == fins_for(count)


@given(st.lists(st.binary(max_size=400), min_size=1, max_size=20), st.lists(st.integers(0, 10_000)))
def test_mixed_messages_are_each_finished_once_for_any_split(contents, cuts):
    stream = b"".join(frame(number, body) for number, body in enumerate(contents))

    assert finish_all(stream, cuts, None) == fins_for(len(contents))


@pytest.mark.parametrize("size", [5, None])
def test_a_frame_that_is_no_message_is_an_error(size):
    stream = frame(0, b"hello") + frame(1, b"hello", kind=1)

    with pytest.raises(LoadError):
        finish_all(stream, [], size)


def test_a_message_of_another_size_is_an_error_in_a_uniform_load():
    stream = frame(0, b"hello") + frame(1, b"hello!")

    with pytest.raises(LoadError):
        finish_all(stream, [], 5)


def test_publishing_is_encoded_as_the_protocol_says():
    assert encode_pub("t", b"ab") == b"PUB t\n\x00\x00\x00\x02ab"
    assert encode_mpub("t", [b"ab", b"c"]) == (
        b"MPUB t\n\x00\x00\x00\x0f\x00\x00\x00\x02\x00\x00\x00\x02ab\x00\x00\x00\x01c"
    )
