"""Redis: every entry is acknowledged once, wherever the stream is cut; an error is not an answer."""

import io
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load import LoadError
from bench.peers.streams import Entries, StreamSession, answer_of, command
from tests.support.in_pieces import consumed, pieces

CUTS = st.lists(st.integers(0, 10_000), max_size=30)


def entry(number, body):
    name = b"17000-%d" % number
    return name, b"*2\r\n$%d\r\n%b\r\n" % (len(name), name) + command(b"b", body)


def answer(entries):
    return b"*1\r\n*2\r\n$1\r\nq\r\n*%d\r\n" % len(entries) + b"".join(text for _, text in entries)


def acknowledged(entries):
    return command(b"XACK", b"q", b"g", *(name for name, _ in entries))


def session():
    found = object.__new__(StreamSession)
    found.in_order = 0
    return found


@given(st.lists(st.integers(8, 400), min_size=1, max_size=20), st.integers(1, 20), CUTS)
def test_entries_of_mixed_sizes_are_each_acknowledged_once_for_any_split(sizes, per_read, cuts):
    entries = [entry(number, b"x" * size) for number, size in enumerate(sizes)]
    reads = [entries[at : at + per_read] for at in range(0, len(entries), per_read)]
    # The answer to the XACK of a read comes before the next read.
    answers_of_reads = [answer(read) + b":%d\r\n" % len(read) for read in reads]
    # The next read is asked for after this answer, so no piece has parts of two answers.
    ends = list(itertools.accumulate(map(len, answers_of_reads)))
    stream, cuts = b"".join(answers_of_reads), [*cuts, *ends[:-1]]
    found = Entries(b"q", None, b"me")

    answers, heads, total, left = consumed(stream, cuts, found.cut)

    assert total == len(entries)
    assert heads == b"x" * 8 * len(entries)
    assert answers.count(found.ask) == len(reads)
    assert [name for name, _ in entries if b"\r\n%b\r\n" % name not in answers] == []
    assert answers.count(b"17000-") == len(entries)
    assert left == b":%d\r\n" % len(reads[-1])


def test_the_next_read_is_asked_for_behind_the_acknowledgement_of_all_of_the_last_one():
    entries = [entry(number, number.to_bytes(8, "big") + b"\r\n" * 4) for number in range(3)]
    found = Entries(b"q", 16, b"me")

    answers, heads, _, _ = consumed(answer(entries), [], found.cut)

    assert answers == acknowledged(entries) + found.ask
    assert heads == b"".join(number.to_bytes(8, "big") for number in range(3))


@pytest.mark.parametrize("said", [b"-NOGROUP no such key\r\n", b"-ERR unknown\r\n"])
def test_an_error_ends_the_load(said):
    with pytest.raises(LoadError, match=said[1:4].decode()):
        consumed(said, [], Entries(b"q", 16, b"me").cut)
    with pytest.raises(LoadError, match=said[1:4].decode()):
        session().feed(said)


def test_entries_of_another_size_are_an_error_in_a_uniform_load():
    with pytest.raises(LoadError):
        consumed(answer([entry(0, b"x" * 9), entry(1, b"x" * 16)]), [], Entries(b"q", 16, b"me").cut)


@given(st.integers(1, 50), CUTS)
def test_an_answer_is_counted_once_for_any_split(count, cuts):
    publisher = session()
    stream = b"".join(
        b"$%d\r\n%b\r\n" % (len(name), name) for name in (b"17000-%d" % n for n in range(count))
    )

    assert sum(publisher.feed(piece) for piece in pieces(stream, cuts)) == count
    assert publisher.in_order == count


def test_answers_of_every_kind_are_read():
    stream = io.BytesIO(b"*4\r\n+PONG\r\n:7\r\n$2\r\n\r\n\r\n*1\r\n$-1\r\n-ERR no\r\n")

    assert answer_of(stream) == [b"PONG", 7, b"\r\n", [None]]
    with pytest.raises(LoadError, match="ERR no"):
        answer_of(stream)
