"""Messages with and without headers: in pages, singly, compacted, after a restart, in memory."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.engine.topic import Topic
from nsqd.log import cursor
from nsqd.log.encoder import Batch
from nsqd.log.frames import Block
from nsqd.log.headers import join, message
from nsqd.log.ids import MessageIds
from nsqd.log.tail import MessageLog
from tests.support.stores import FIRST, Shop

SOME = {"a": "b"}


def publish(shop, *messages, extended, due_ns=0):
    """Append one block of messages, each given as (headers, body)."""
    bodies = [join(*one) if extended else one[1] for one in messages]
    block = shop.encoder.batch(Batch(bodies, has_headers=extended), 1)
    block.due_ns = due_ns
    shop.store.appender.append([block], [], block.first)
    return block


def messages(read, seq, end):
    """Every readable message, by its sequence."""
    found = {}
    for start, stop, block in cursor.scan(read, seq, end):
        if isinstance(block, Block):
            found |= {each: message(block, each) for each in range(start, stop)}
    return found


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    shop.segment_bytes = 1500
    shop.new()
    yield shop
    shop.store.appender.close()


def test_single_messages_of_both_kinds_are_read_from_among_many(shop):
    expected = {}
    for n in range(200):
        extended = n % 3 == 0
        block = publish(shop, (SOME if extended else {}, b"%d" % n), extended=extended)
        expected[block.first] = (SOME if extended else {}, b"%d" % n)

    for seq in (FIRST, FIRST + 7, FIRST + 9, FIRST + 100, FIRST + 101, FIRST + 199):
        block = shop.store.segments.read(seq, seq + 1)
        assert message(block, seq) == expected[seq]
        assert {
            each: message(block, each) for each in range(block.first, block.next)
        }.items() <= expected.items()
    few = messages(shop.store.segments, FIRST + 50, FIRST + 60)
    assert few == {seq: expected[seq] for seq in range(FIRST + 50, FIRST + 60)}


def test_headers_outlive_restart_and_compaction(shop):
    first = publish(shop, (SOME, b"1"), ({}, b"2"), (SOME, b"3"), extended=True, due_ns=99)
    publish(shop, *[({}, b"x" * 1000)] * 50, extended=False)
    shop.store.appender.seal()
    newest = publish(shop, ({}, b"newest"), extended=False)
    assert shop.sync() is None
    wanted = {first.first + 1: ({}, b"2"), first.first + 2: (SOME, b"3"), newest.first: ({}, b"newest")}

    shop.compact((first.first + 1, first.next), (newest.first, newest.next))

    assert messages(shop.store.segments, FIRST, newest.next) == wanted
    found = shop.reopen()
    assert messages(shop.store.segments, FIRST, newest.next) == wanted
    assert [one.due_ns for one in found.tail_records][:1] == [99]


def test_block_cut_in_memory_keeps_headers():
    log = MessageLog(None, 0, 0)
    topic = Topic("t#ephemeral", MessageIds(1), None, 10, 100)
    topic.stage(b"1", 1, extension=join(SOME, b""))
    topic.stage(b"2", 1)
    topic.stage(b"3", 1, extension=join(SOME, b""))
    for block in topic.staged():
        log.append(block)

    log.retain([(11, 13)])

    assert messages(log, 11, 13) == {11: ({}, b"2"), 12: (SOME, b"3")}


MIXTURE = st.lists(
    st.tuples(
        st.booleans(),
        st.lists(
            st.tuples(
                st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2), st.binary(min_size=1)
            ),
            min_size=1,
            max_size=5,
        ),
    ),
    min_size=1,
    max_size=12,
)


@given(MIXTURE, st.integers(0, 5000))
@settings(max_examples=60, deadline=None)
def test_mixture_of_headers_survives_cut_as_prefix(tmp_path_factory, mixture, cut):
    shop = Shop(tmp_path_factory.mktemp("mixture"))
    shop.new()
    expected, ends = {}, []
    for extended, given_messages in mixture:
        kept = [(headers if extended else {}, body) for headers, body in given_messages]
        block = publish(shop, *kept, extended=extended)
        expected |= {block.first + n: one for n, one in enumerate(kept)}
        ends.append(block.next)
    assert messages(shop.store.segments, FIRST, ends[-1]) == expected

    with shop.log(1).open("r+b") as file:
        size = file.seek(0, 2)
        file.truncate(max(0, size - cut))
    shop.reopen()

    found = messages(shop.store.segments, FIRST, ends[-1])
    whole = next((end for end in reversed(ends) if end - 1 in found), FIRST)
    assert found == {seq: one for seq, one in expected.items() if seq < whole}
    shop.store.appender.close()
