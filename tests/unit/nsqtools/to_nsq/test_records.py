"""How to_nsq splits a stream into records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtools.to_nsq.records import Records


def records(*pieces: bytes, delimiter: bytes = b"\n") -> list[bytes]:
    cutter = Records(delimiter)
    return [*(record for piece in pieces for record in cutter.feed(piece)), *cutter.end()]


@pytest.mark.parametrize(
    ("stream", "found"),
    [
        (b"", []),
        (b"\n", []),
        (b"x", [b"x"]),
        (b"xyz", [b"xyz"]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\n\n\nb", [b"a", b"b"]),
        (b"a\r\nb", [b"a\r", b"b"]),
    ],
)
def test_delimiter_ends_record_and_so_does_the_end(stream, found):
    assert records(stream) == found


def test_delimiter_may_be_any_byte():
    assert records(b"a\0b\n\0", delimiter=b"\0") == [b"a", b"b\n"]


def test_newline_at_the_end_is_not_part_of_the_last_record():
    assert records(b"one,two,three\n", delimiter=b",") == [b"one", b"two", b"three"]
    assert records(b"a,\n", delimiter=b",") == [b"a"]
    assert records(b"a\n,b", delimiter=b",") == [b"a\n", b"b"]


def test_beginning_of_record_is_not_yet_one():
    cutter = Records(b"\n")

    assert cutter.feed(b"a\nbc") == [b"a"]
    assert cutter.unfinished == 2


@given(st.lists(st.binary(max_size=8).map(lambda piece: piece.replace(b"\x01", b"\n"))))
def test_split_of_stream_makes_no_difference(pieces):
    assert records(*pieces) == [record for record in b"".join(pieces).split(b"\n") if record]
