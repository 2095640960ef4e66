"""Two holders of a log exchange facts: nothing is lost, whichever tells first and however often."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.engine import carried, facts
from nsqd.log.ranges import merged, size_of, within, without
from tests.campaign.two_nodes import World
from tests.support.carrying import Carrier, copy_of
from tests.support.engine import SECOND, Node

COUNT = 40
RANGES = st.lists(st.tuples(st.integers(0, COUNT), st.integers(0, COUNT)), max_size=6)


@pytest.mark.parametrize("seed", range(24))
def test_histories_of_a_home_and_its_carrier_keep_what_is_promised(seed):
    World(seed, crashes=seed % 3 != 0, both=seed % 2 == 0).run()


def holder(pieces, seed):
    """A home whose channel has finished some messages, and has others in flight, deferred and waiting."""
    node = Node()
    channel = node.channel()
    node.publish(*[b"x"] * COUNT)
    first = node.topic().log.next_seq - COUNT
    rng = random.Random(seed)
    consumer, _ = node.subscribe(channel, rdy=rng.randrange(COUNT))
    for start, end in channel.in_flight.ranges():
        for seq in range(start, end):
            if rng.random() < 0.3:
                channel.requeue(seq, consumer, rng.choice((0, 5 * SECOND)), node.now_ns)
    consumer.rdy = 0
    node.turn()
    told = merged([(first + low, first + high) for low, high in pieces if low < high])
    return node, channel, told, first


@given(RANGES, RANGES, st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_in_which_order_it_is_told_makes_no_difference(one, other, seed):
    results = []
    for order in ((0, 1), (1, 0), (0, 1, 0, 1)):
        node, channel, _, first = holder([], seed)
        told = [merged([(first + a, first + b) for a, b in pieces if a < b]) for pieces in (one, other)]
        for which in order:
            carried.unite(node.broker, node.topic(), channel, told[which])
        results.append((channel.owed(0, channel.end), sorted(channel.attempts), channel.in_flight.ranges()))

    assert results[0] == results[1] == results[2]


@given(RANGES, st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_what_was_told_is_finished_and_all_else_is_where_it_was(pieces, seed):
    node, channel, told, _ = holder(pieces, seed)
    before = channel.owed(0, channel.end)
    flying = channel.in_flight.ranges()
    consumers = list(channel.consumers)

    news = carried.unite(node.broker, node.topic(), channel, told)

    assert news == size_of(facts.within_all(before, told))
    assert channel.owed(0, channel.end) == without(before, told)
    assert channel.in_flight.ranges() == without(flying, told)
    assert sum(consumer.in_flight for consumer in consumers) == channel.in_flight.count
    waiting = channel.waiting()
    deferred = [(start, end) for _, start, end in channel.deferred.runs()]
    everywhere = merged(waiting + deferred + channel.in_flight.ranges())
    assert everywhere == channel.owed(0, channel.end)
    assert size_of(waiting) == channel.depth
    assert carried.unite(node.broker, node.topic(), channel, told) == 0


@given(RANGES, st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_what_was_told_survives_a_checkpoint(pieces, seed):
    node, channel, told, _ = holder(pieces, seed)
    carried.unite(node.broker, node.topic(), channel, told)
    again = copy_of(node.topic(), node)

    assert facts.facts(again, "c") == facts.facts(node.topic(), "c")
    assert again.channels["c"].owed(0, channel.end) == channel.owed(0, channel.end)


@given(RANGES, RANGES, st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_what_is_withheld_and_given_out_in_any_order_is_all_there(one, other, seed):
    node, channel, told, first = holder(one, seed)
    pieces = merged([(first + low, first + high) for low, high in other if low < high])
    carried.hold_back(node.topic(), told)
    carried.hold_back(node.topic(), pieces)
    for start, end in channel.waiting():
        assert not within(told, start, end)

    carried.give_out(node.broker, node.topic(), {"c": told})
    assert channel.withheld == told
    carried.give_out(node.broker, node.topic(), {})

    everywhere = channel.waiting() + channel.in_flight.ranges()
    everywhere += [(start, end) for _, start, end in channel.deferred.runs()]
    assert merged(everywhere) == channel.owed(0, channel.end)
    assert size_of(everywhere) == channel.count()


@given(RANGES, st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_a_carrier_gives_what_it_serves_and_owes_the_rest(pieces, seed):
    home, _, serves, first = holder(pieces, seed)
    carrier = Carrier()
    copy = carrier.carry(home.topic(), serves)
    _, outlet = carrier.subscribe(carrier.channel(), rdy=1000)
    carrier.advance(20)

    given_out = sorted({home.broker.ids.decode(message_id) for message_id, _, _ in outlet.taken()})
    assert given_out == [seq for start, end in serves for seq in range(start, end)]
    assert copy.channels["c"].owed(0, first + COUNT) == [(first, first + COUNT)]
