"""How much is delivered in one turn, and topology-aware consumption: the nearest ready consumers first.

The rest of delivery is tested in test_channel.py and test_seeking.py.
"""

from itertools import count, pairwise

import pytest

from nsqd.engine.broker import Broker
from nsqd.engine.channel import Consumer
from nsqd.engine.credit import ELSEWHERE, SAME_REGION, SAME_ZONE
from nsqd.engine.delivering import MAX_DELIVERY_BYTES, MAX_SAMPLED_PER_TURN
from nsqd.engine.limits import Limits
from nsqd.log.ids import MessageIds
from nsqd.log.tail import MAX_READS_PER_TURN
from nsqd.server.delivery import BYTES_PER_TURN, serve
from nsqd.storage.data_path import DataPath, StorageOptions
from tests.support.disks import Counting
from tests.support.engine import SECOND, Node, Outlet, bodies

PLACES = {"zone": SAME_ZONE, "region": SAME_REGION, "far": ELSEWHERE}


@pytest.fixture
def node():
    return Node(topology_aware=True)


def join(node, channel, place, rdy=1):
    outlet = Outlet()
    consumer = Consumer(outlet, 60 * SECOND, nearness=PLACES[place])
    channel.subscribe(consumer, 0)
    node.ready(consumer, rdy)
    return consumer, outlet


def test_farther_consumer_gets_surplus_of_nearer_one(node):
    channel = node.channel()
    _, far = join(node, channel, "far", rdy=10)
    _, region = join(node, channel, "region", rdy=2)
    _, zone = join(node, channel, "zone", rdy=3)

    node.publish(*(b"%d" % number for number in range(9)))

    assert [len(bodies(outlet)) for outlet in (zone, region, far)] == [3, 2, 4]
    assert channel.zones == [3, 2, 4]


def test_requeued_message_goes_to_nearest_consumer(node):
    channel = node.channel()
    far, outlet = join(node, channel, "far")
    node.publish(b"1")
    ((message_id, _, _),) = outlet.taken()
    _, zone = join(node, channel, "zone")
    channel.requeue(node.broker.ids.decode(message_id), far, 0, node.now_ns)
    channel.refresh(far)
    node.broker.serve(channel)
    node.turn()

    assert bodies(zone) == [b"1"]


def test_equally_near_consumers_take_turns_and_share(node):
    channel = node.channel()
    _, a = join(node, channel, "zone", rdy=100)
    _, b = join(node, channel, "zone", rdy=100)
    join(node, channel, "far", rdy=100)

    for number in range(6):
        node.publish(b"%d" % number)
    assert [len(bodies(outlet)) for outlet in (a, b)] == [3, 3]

    node.publish(*(b"%d" % number for number in range(60)))
    assert [len(bodies(outlet)) for outlet in (a, b)] == [30, 30]


def test_busy_or_departed_neighbour_keeps_nothing_from_the_others(node):
    channel = node.channel()
    busy, _ = join(node, channel, "zone")
    gone, _ = join(node, channel, "zone")
    _, far = join(node, channel, "far", rdy=5)
    busy.blocked = True
    channel.unsubscribe(gone)

    node.publish(b"1", b"2")

    assert bodies(far) == [b"1", b"2"]


@pytest.mark.parametrize("consumers", [1, 3])
def test_long_queue_is_delivered_in_several_turns(consumers):
    node = Node()
    channel = node.channel()
    node.publish(*[b"x" * 1000] * 1500)
    outlets = []
    for _ in range(consumers):
        outlet = Outlet()
        consumer = Consumer(outlet, 60 * SECOND)
        channel.subscribe(consumer, 0)
        consumer.rdy = 1500
        channel.refresh(consumer)
        outlets.append(outlet)

    turns = []
    more = True
    while more:
        before = sum(len(frame) for outlet in outlets for frame in outlet.frames)
        more = serve(node.broker, channel, node.now_ns)
        turns.append(sum(len(frame) for outlet in outlets for frame in outlet.frames) - before)

    assert channel.backlog.pending.count == 0
    assert len(turns) > 1
    # A turn ends with the delivery that fills it.
    assert max(turns) < (BYTES_PER_TURN + MAX_DELIVERY_BYTES) * consumers


def sampling(channel, keep, consumers):
    """The outlets of so many consumers that share *keep* as their draw."""
    outlets = [Outlet() for _ in range(consumers)]
    for outlet in outlets:
        consumer = Consumer(outlet, 60 * SECOND, keep)
        channel.subscribe(consumer, 0)
        consumer.rdy = 2500
        channel.refresh(consumer)
    return outlets


@pytest.mark.parametrize("consumers", [1, 4])
def test_turn_ends_after_some_thousand_messages_that_are_not_drawn(consumers):
    node = Node(mem_queue_size=100_000)
    channel = node.channel()
    node.publish(*[b"x"] * 99_999, b"drawn")
    draws = count(1)
    outlets = sampling(channel, lambda: next(draws) == 100_000, consumers)
    passed = []
    more = True

    while more:
        before = channel.backlog.pending.count
        more = serve(node.broker, channel, node.now_ns)
        passed.append(before - channel.backlog.pending.count)
        assert more == (channel.backlog.pending.count > 0)

    assert max(passed) == MAX_SAMPLED_PER_TURN
    assert sum(passed) == next(draws) - 1 == 100_000
    assert [bodies(outlet) for outlet in outlets].count([b"drawn"]) == 1
    assert (channel.backlog.lowest(), channel.backlog.in_flight.count) == (channel.log.next_seq - 1, 1)


def test_messages_that_are_drawn_fill_turn_by_their_number_as_well():
    node = Node(mem_queue_size=12_000)
    channel = node.channel()
    node.publish(*[b"x"] * 12_000)
    outlets = sampling(channel, lambda: True, 6)
    sent = [0]

    while serve(node.broker, channel, node.now_ns):
        sent.append(channel.backlog.in_flight.count)
    sent.append(channel.backlog.in_flight.count)

    assert sent[-1] == sum(len(bodies(outlet)) for outlet in outlets) == 12_000
    assert max(after - before for before, after in pairwise(sent)) < 2 * MAX_SAMPLED_PER_TURN


def test_message_larger_than_a_turn_is_delivered_alone():
    node = Node()
    channel = node.channel()
    node.publish(*[b"x" * (2 * BYTES_PER_TURN)] * 3)
    outlet = Outlet()
    consumer = Consumer(outlet, 60 * SECOND)
    channel.subscribe(consumer, 0)
    consumer.rdy = 10
    channel.refresh(consumer)

    turns = [serve(node.broker, channel, node.now_ns) for _ in range(3)]

    assert turns == [True, True, False]
    assert channel.backlog.pending.count == 0


def test_next_due_time_is_first_message_time_out():
    node = Node()
    channel = node.channel()
    node.subscribe(channel, rdy=1, msg_timeout=60)
    begun_ns = node.now_ns
    node.publish(b"late")
    assert node.broker.next_due_ns() == begun_ns + 60 * SECOND

    node.subscribe(channel, rdy=1, msg_timeout=5)
    node.publish(b"soon")
    assert node.broker.next_due_ns() == begun_ns + 5 * SECOND

    node.advance(5)
    assert (channel.backlog.in_flight.count, channel.timeout_count) == (2, 1)
    # It was delivered again, to the free consumer, and times out after the same time as before.
    assert node.broker.next_due_ns() == begun_ns + 10 * SECOND


def test_answered_messages_leave_next_due_time():
    node = Node()
    channel = node.channel()
    consumer, outlet = node.subscribe(channel, rdy=1)
    for _ in range(3):
        node.publish(b"quick")
        node.now_ns += SECOND
        node.finish(consumer, outlet.taken()[0][0])
    node.publish(b"kept")
    left_ns = node.now_ns + 60 * SECOND

    node.advance(57)

    assert channel.timeout_count == 0
    assert node.broker.next_due_ns() == left_ns
    node.advance(3)
    assert channel.timeout_count == 1


@pytest.fixture
def scattered(tmp_path):
    """A broker, a channel whose 200 deferred messages lie far apart on the disk, and the disk."""
    disk = Counting()
    data = DataPath(tmp_path, StorageOptions(), pytest.fail, disk)
    broker = Broker(MessageIds(1), Limits(mem_queue_size=0), data.create_log)
    topic = broker.topic("t", SECOND)
    channel = broker.channel(topic, "c")
    for _ in range(200):
        # A page of its own for each would be read immediately; so the short ones between them are finished.
        for body in (b"wanted", b"x" * 5000):
            topic.stage(body, SECOND)
            topic.store.appender.append(topic.staged(), topic.staged_notes(), topic.log.next_seq)
            broker.commit(topic)
    first = channel.backlog.lowest()
    channel.backlog.discard([(first, first + 400)])
    for seq in range(first, first + 400):
        if (seq - first) % 2:
            channel.backlog.finish([(seq, seq + 1)])
        else:
            channel.backlog.defer(seq, seq + 1, SECOND)
    topic.log.release(topic.log.next_seq)
    channel.expire(2 * SECOND)
    yield broker, channel, disk
    topic.store.appender.close()


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("consumers", [1, 7])
def test_turn_ends_after_so_many_reads_of_disk_and_the_next_goes_on(scattered, sampled, consumers):
    broker, channel, disk = scattered
    outlets = [Outlet() for _ in range(consumers)]
    for outlet in outlets:
        consumer = Consumer(outlet, 60 * SECOND, keep=(lambda: True) if sampled else None)
        channel.subscribe(consumer, 0)
        consumer.rdy = 1000
        channel.refresh(consumer)

    turns = 0
    more = True
    while more:
        disk.sizes.clear()
        more = serve(broker, channel, 2 * SECOND)
        turns += 1
        assert len(disk.sizes) < 2 * MAX_READS_PER_TURN + 2

    assert channel.backlog.pending.count == 0
    assert turns >= 200 // (2 * MAX_READS_PER_TURN)
    assert [body for outlet in outlets for _, _, body in outlet.taken()] == [b"wanted"] * 200
