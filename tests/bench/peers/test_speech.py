"""An order of acknowledgements is a permutation, and every protocol sends each acknowledgement once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.peers.amqp import DeliverFrames
from bench.peers.jetstream import PulledMessages
from bench.peers.nsq import commands
from bench.peers.speech import shuffled
from bench.peers.streams import Entries
from tests.bench.peers import test_amqp, test_jetstream, test_streams
from tests.support.in_pieces import consumed


@given(st.integers(0, 300))
def test_every_number_is_there_once_and_the_order_is_the_same_each_time(count):
    numbers = list(range(count))

    assert sorted(shuffled(numbers)) == numbers
    assert shuffled(numbers) == shuffled(numbers)
    assert count < 10 or shuffled(numbers) != numbers


def backwards(items):
    return items[::-1]


def test_nsq_finishes_in_the_order_asked_for():
    fins = [b"FIN %016x\n" % number for number in range(5)]

    assert backwards(commands(b"".join(fins))) == fins[::-1]


def test_redis_acknowledges_in_the_order_asked_for():
    entries = [test_streams.entry(number, b"x" * 8) for number in range(5)]
    found = Entries(b"q", 8, b"c", backwards)

    answers, *_ = consumed(test_streams.answer(entries), [], found.cut)

    assert answers == test_streams.acknowledged(entries[::-1]) + found.ask


def test_jetstream_acknowledges_in_the_order_asked_for():
    stream = b"".join(test_jetstream.message(number, b"x" * 8) for number in range(5))

    answers, *_ = consumed(stream, [], PulledMessages("q", 8, backwards).cut)

    assert answers == b"".join(
        b"PUB %b 0\r\n\r\n" % test_jetstream.ack(number) for number in reversed(range(5))
    )


@pytest.mark.parametrize("size", [None, 8])
def test_rabbitmq_acknowledges_one_by_one_in_the_order_asked_for(size):
    stream = b"".join(test_amqp.message(tag, b"\xce" * 8) for tag in range(1, 6))

    answers, *_ = consumed(stream, [], DeliverFrames("q", size, backwards).cut)

    assert answers == b"".join(map(test_amqp.confirm, range(5, 0, -1)))
