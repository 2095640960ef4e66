import pytest

from nsqd.engine.channel import Consumer, TooManyConsumers
from nsqd.engine.delivering import MAX_DELIVERY_BYTES, deliver
from nsqd.engine.latency import Latency
from nsqd.engine.limits import Limits
from nsqd.engine.pending import PendingRange
from nsqd.log.frames import Block
from nsqd.log.gaps import CannotRead, Gap, Why
from nsqd.log.ranges import size_of
from tests.support.engine import SECOND, Node, Outlet, bodies, counts


def test_messages_are_delivered_in_order_up_to_rdy(node, channel):
    node.publish(b"1", b"2", b"3")
    consumer, outlet = node.subscribe(channel, rdy=2)

    assert bodies(outlet) == [b"1", b"2"]
    assert (channel.backlog.pending.count, channel.backlog.in_flight.count, consumer.in_flight) == (1, 2, 2)


def test_channels_get_copies_with_the_same_id(node, channel):
    other = node.channel("other")
    _, left = node.subscribe(channel, rdy=1)
    _, right = node.subscribe(other, rdy=1)

    node.publish(b"both")

    assert left.taken() == right.taken()


@pytest.mark.parametrize("batch", [1, 200])
def test_ready_consumers_share_messages(node, channel, batch):
    outlets = [node.subscribe(channel, rdy=2500)[1] for _ in range(4)]

    for _ in range(200 // batch):
        node.publish(*[b"x"] * batch)

    assert [len(outlet.taken()) for outlet in outlets] == [50] * 4


@pytest.mark.parametrize("paused", [False, True])
def test_consumers_that_leave_or_stop_are_not_ready(node, channel, paused):
    channel.paused = paused
    first, second, third = (node.subscribe(channel, rdy=1)[0] for _ in range(3))

    node.broker.remove_consumer(first)
    node.ready(second, 0)

    assert list(channel.ready) == [third]


def test_requeue_with_delay_comes_back_when_it_is_due(node, channel):
    node.publish(b"1")
    consumer, outlet = node.subscribe(channel, rdy=1)
    ((first, _, _),) = outlet.taken()
    channel.requeue(node.broker.ids.decode(first), consumer, 5_000_000_000, node.now_ns)
    node.broker.reschedule(channel)
    node.ready(consumer, 1)

    node.advance(4.9)
    assert outlet.taken() == []
    assert (channel.backlog.pending.count, channel.backlog.deferred.count) == (0, 1)

    node.advance(0.2)
    assert [(a, body) for _, a, body in outlet.taken()] == [(2, b"1")]


def test_attempts_count_on_through_timeouts_and_are_forgotten_at_finish(node, channel):
    node.publish(b"1")
    consumer, outlet = node.subscribe(channel, rdy=1, msg_timeout=1)
    for _ in range(3):
        node.advance(1)

    assert [attempts for _, attempts, _ in outlet.taken()] == [1, 2, 3, 4]
    seq = channel.backlog.in_flight.ranges()[0][0]
    channel.finish([seq], consumer, node.now_ns)
    assert channel.backlog.attempts == {}


def test_touch_prolongs_but_not_past_maximum_from_delivery(node, channel):
    node.publish(b"1")
    consumer, _ = node.subscribe(channel, rdy=1, msg_timeout=2)
    seq = channel.backlog.in_flight.ranges()[0][0]
    for _ in range(2):
        node.advance(1.5)
        channel.touch(seq, consumer, 4_000_000_000, node.now_ns)
        node.broker.reschedule(channel)
    assert channel.timeout_count == 0

    node.advance(1)

    assert channel.timeout_count == 1


def test_disconnect_gives_messages_back_at_once(node, channel):
    node.publish(b"1", b"2")
    consumer, _ = node.subscribe(channel, rdy=2)

    node.broker.remove_consumer(consumer)
    _, outlet = node.subscribe(channel, rdy=2)

    assert [(a, body) for _, a, body in outlet.taken()] == [(2, b"1"), (2, b"2")]
    assert (channel.returned_count, channel.requeue_count, channel.timeout_count) == (2, 0, 0)


def test_consumer_whose_socket_is_full_gets_nothing(node, channel):
    consumer, outlet = node.subscribe(channel, rdy=10)
    consumer.blocked = True
    node.publish(b"1")
    assert outlet.taken() == []

    consumer.blocked = False
    node.ready(consumer, 10)

    assert bodies(outlet) == [b"1"]


def test_number_of_consumers_is_limited(node, channel):
    node.subscribe(channel)

    with pytest.raises(TooManyConsumers, match="consumers for t:c exceeds limit of 1"):
        channel.subscribe(Consumer(Outlet(), SECOND), 1)


@pytest.mark.parametrize("size", [0, 3])
def test_ephemeral_channel_drops_what_exceeds_its_memory(size):
    node = Node(mem_queue_size=size)
    channel = node.channel("c#ephemeral", topic="t#ephemeral")

    node.publish(*[b"%d" % n for n in range(5)], topic="t#ephemeral")
    _, outlet = node.subscribe(channel, rdy=10)

    assert bodies(outlet) == [b"0", b"1", b"2"][:size]


def test_ephemeral_channel_with_ready_consumer_has_published_messages_only():
    node = Node(mem_queue_size=0)
    channel = node.channel("c#ephemeral")
    consumer, outlet = node.subscribe(channel, rdy=5)

    for count in range(1, 6):
        node.publish(b"%d" % count)
        assert (channel.backlog.pending.count, channel.backlog.in_flight.count, channel.lost_count) == (
            0,
            count,
            0,
        )

    taken = outlet.taken()
    assert [body for _, _, body in taken] == [b"1", b"2", b"3", b"4", b"5"]
    assert channel.log.stored_ranges.ranges(channel.log.next_seq) == channel.log.extents()
    for message_id, _, _ in taken:
        node.finish(consumer, message_id)
    assert consumer.in_flight == 0


def test_requeue_to_full_ephemeral_channel_drops_no_other_message():
    node = Node(mem_queue_size=0)
    channel = node.channel("c#ephemeral")
    consumer, outlet = node.subscribe(channel, rdy=5)
    node.publish(b"1")
    node.publish(b"2")
    (first, _, _), _ = outlet.taken()

    channel.requeue(node.broker.ids.decode(first), consumer, 0, node.now_ns)
    node.ready(consumer, 5)

    assert outlet.taken() == [(first, 2, b"1")]
    assert (channel.backlog.pending.count, channel.backlog.in_flight.count, consumer.in_flight) == (0, 2, 2)


def test_commit_acknowledges_waiting_deferred_and_flying_messages_below(node, channel):
    node.publish(*[b"%d" % n for n in range(10)])
    consumer, outlet = node.subscribe(channel, rdy=4)
    first = node.broker.ids.decode(outlet.taken()[0][0])
    channel.requeue(first + 1, consumer, 60_000_000_000, node.now_ns)

    channel.commit(first + 3)
    channel.commit(first + 3)
    node.ready(consumer, 0)

    assert channel.acknowledged == first + 3
    assert counts(channel) == (6, 1, 0)
    channel.commit(first + 10)
    assert channel.acknowledged == first + 10 == node.topic().log.next_seq
    assert consumer.in_flight == 0


# --- messages that cannot be read just now


class Shelf:
    """What a topic has on disk; with *reason* set it cannot be read."""

    def __init__(self):
        self.blocks = []
        self.gaps = []
        self.reason = None

    @property
    def segments(self):
        return self

    def read(self, seq, end):
        if self.reason is not None:
            raise CannotRead(self.reason)
        for gap in self.gaps:
            if gap.start <= seq < gap.end:
                return gap
        return next((block for block in self.blocks if block.first <= seq < block.next), None)

    reads = 0

    def frames(self, seqs, room, *, extended):
        found = []
        for seq in seqs:
            block = None if self.reason or room <= 0 else self.read(seq, seq + 1)
            if not isinstance(block, Block):
                break
            found.append(block.view(seq, seq + 1))
            room -= len(found[-1])
        return found


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def stored(node, shelf):
    """A channel with eight messages, of which only the last few are in memory."""
    node.broker.limits = Limits(mem_queue_size=1)
    node.broker._storage_factory = lambda _name: shelf
    channel = node.channel()
    topic = node.topic()
    for n in range(8):
        topic.stage(b"%d" % n * 100_000, node.now_ns)
        shelf.blocks += topic.staged()
        node.broker.dirty[topic] = None
        node.turn()
    assert size_of(topic.log.extents()) < 4
    return channel


def test_messages_on_disk_that_came_back_are_delivered_in_that_order(node, stored):
    consumer, outlet = node.subscribe(stored, rdy=8)
    assert first_bytes(outlet) == [b"%d" % n for n in range(8)]
    first = stored.log.next_seq - 8
    node.ready(consumer, 0)
    for n in (3, 0, 4, 1, 2):
        stored.requeue(first + n, consumer, 0, node.now_ns)

    node.ready(consumer, 8)

    assert first_bytes(outlet) == [b"3", b"0", b"4", b"1", b"2"]
    assert (stored.backlog.pending.count, stored.backlog.in_flight.count) == (0, 8)


def test_requeued_message_on_disk_waits_behind_its_batch(node, stored):
    consumer, _outlet = node.subscribe(stored, rdy=1)
    first = stored.log.next_seq - 8
    stored.backlog.pending.entries.append(PendingRange(first + 8, first + 8 + 1000, redelivered=False))

    stored.requeue(first, consumer, 0, node.now_ns)
    stored.backlog.pending.gather(stored.log.resident_from)

    assert [(span.start - first, span.redelivered) for span in stored.backlog.pending.entries] == [
        (1, False),
        (8, False),
        (0, True),
    ]


@pytest.fixture
def apart(node, stored):
    """The same channel after its eight messages were delivered: six were requeued and two finished."""
    consumer, outlet = node.subscribe(stored, rdy=8)
    assert len(outlet.taken()) == 8
    first = stored.log.next_seq - 8
    node.ready(consumer, 0)
    for n in (7, 0, 6, 2, 3, 5):
        stored.requeue(first + n, consumer, 5 * SECOND, node.now_ns)
    stored.finish([first + 1, first + 4], consumer, node.now_ns)
    node.advance(6)
    stored.expire(node.now_ns)
    assert [(start - first, end - first) for start, end in stored.backlog.pending.ranges()] == [
        (0, 1),
        (2, 4),
        (5, 8),
    ]
    return stored, consumer, outlet, first


def test_due_messages_are_one_run_answered_one_by_one(node, apart):
    channel, consumer, outlet, first = apart
    node.ready(consumer, 4)
    # Some were on disk and some in memory; each had been delivered once before.
    came = [(body[:1], attempts) for _, attempts, body in outlet.taken()]
    assert came == [(b"0", 2), (b"2", 2), (b"3", 2), (b"5", 2)]
    assert (channel.backlog.pending.count, channel.backlog.in_flight.count, consumer.in_flight) == (2, 4, 4)

    node.ready(consumer, 0)
    channel.finish([first + 3], consumer, node.now_ns)
    channel.touch(first + 2, consumer, 3600 * SECOND, node.now_ns)
    assert channel.finish([first + 5, first + 4], consumer, node.now_ns)[0][0] == 1
    channel.requeue(first, consumer, 0, node.now_ns)

    assert [(start - first, end - first) for start, end in channel.backlog.pending.ranges()] == [
        (6, 8),
        (0, 1),
    ]
    assert (channel.backlog.pending.count, channel.backlog.in_flight.count) == (3, 1)


def test_missing_due_message_is_counted_and_the_others_delivered(node, shelf, apart):
    channel, consumer, outlet, first = apart
    shelf.gaps = [Gap(first + 2, first + 3, Why.DAMAGED)]

    node.ready(consumer, 8)

    assert first_bytes(outlet) == [b"0", b"3", b"5", b"6", b"7"]
    assert (channel.lost_count, channel.backlog.pending.count) == (1, 0)


def test_due_messages_wait_for_unreadable_file(node, shelf, apart):
    channel, consumer, outlet, _first = apart
    shelf.reason = "input/output error"
    node.ready(consumer, 8)
    assert (outlet.taken(), channel.backlog.pending.count) == ([], 6)
    shelf.reason = None

    node.advance(10)

    assert first_bytes(outlet) == [b"0", b"2", b"3", b"5", b"6", b"7"]
    assert channel.lost_count == 0


def test_latency_of_due_messages_is_measured_for_each(node, apart):
    channel, consumer, outlet, first = apart
    channel.latency = Latency((0.5,), 60 * SECOND, node.now_ns)
    node.ready(consumer, 4)
    assert len(outlet.taken()) == 4

    channel.touch(first + 3, consumer, 3600 * SECOND, node.now_ns)
    channel.finish([first + 5, first + 3], consumer, node.now_ns)

    found = channel.latency.snapshot(node.now_ns)
    assert found["count"] == 2
    assert found["percentiles"][0]["value"] == 6 * SECOND


def test_sampled_consumer_draws_each_of_those_that_are_due_together(node, apart):
    channel, _consumer, _outlet, _first = apart
    drawn = iter([True, False, True, False, True, False])
    sampled, outlet = node.subscribe(channel)
    sampled.keep = lambda: next(drawn)

    node.ready(sampled, 8)

    assert first_bytes(outlet) == [b"0", b"3", b"6"]
    assert (channel.backlog.pending.count, channel.backlog.in_flight.count) == (0, 3)


def test_message_that_is_finished_is_not_read_to_know_how_long_it_took(node, shelf, stored):
    stored.latency = Latency((0.5,), 60 * SECOND, node.now_ns)
    consumer, outlet = node.subscribe(stored, rdy=8)
    assert len(outlet.taken()) == 8
    first = stored.log.next_seq - 8
    shelf.reason = "nothing is read"
    node.advance(2)

    stored.touch(first + 5, consumer, 60 * SECOND, node.now_ns)
    stored.finish(range(first, first + 2), consumer, node.now_ns)
    stored.finish([first + 7, first + 5], consumer, node.now_ns)
    stored.finish([first + 2], consumer, node.now_ns)

    found = stored.latency.snapshot(node.now_ns)
    assert (found["count"], found["percentiles"][0]["value"]) == (5, 2 * SECOND)


def first_bytes(outlet):
    return [body[:1] for _, _, body in outlet.taken()]


def test_unreadable_message_is_delivered_later(node, shelf, stored):
    shelf.reason = "too many open files"
    _, outlet = node.subscribe(stored, rdy=10)
    assert (outlet.taken(), stored.backlog.pending.count, stored.lost_count) == ([], 8, 0)
    assert stored.stalled == "too many open files"

    shelf.reason = None
    node.advance(0.05)

    assert first_bytes(outlet) == [b"%d" % n for n in range(8)]
    assert (stored.backlog.pending.count, stored.lost_count, stored.stalled) == (0, 0, "")


def test_retry_pauses_grow_to_limit_and_restart_after_success(node, shelf, stored):
    shelf.reason = "input/output error"
    consumer, outlet = node.subscribe(stored, rdy=1)
    pauses = []
    for _ in range(10):
        pauses.append(stored.retry_ns - node.now_ns)
        node.advance(pauses[-1] / 10**9)
    assert pauses[:4] == [50_000_000, 100_000_000, 200_000_000, 400_000_000]
    assert pauses[-1] == pauses[-2] == 5_000_000_000

    shelf.reason = None
    node.advance(5)
    ((message, _, _),) = outlet.taken()
    shelf.reason = "input/output error"
    node.finish(consumer, message)

    assert stored.retry_ns - node.now_ns == 50_000_000


def test_stalled_channel_reads_nothing_until_retry(node, shelf, stored):
    shelf.reason = "input/output error"
    consumer, outlet = node.subscribe(stored, rdy=1)
    shelf.reason = None

    node.ready(consumer, 2)
    assert outlet.taken() == []

    node.advance(0.05)
    assert first_bytes(outlet) == [b"0", b"1"]


def test_stalled_channel_does_not_block_others(node, shelf, stored):
    shelf.reason = "input/output error"
    node.subscribe(stored, rdy=1)
    other = node.channel("other")
    _, outlet = node.subscribe(other, rdy=1)

    node.publish(b"new")

    assert bodies(outlet) == [b"new"]


def test_lost_messages_are_counted_unless_finished(node, shelf, stored):
    first = stored.backlog.lowest()
    shelf.gaps = [Gap(first, first + 2, Why.DAMAGED), Gap(first + 2, first + 3, Why.COMPACTED)]

    _, outlet = node.subscribe(stored, rdy=10)

    assert first_bytes(outlet) == [b"3", b"4", b"5", b"6", b"7"]
    assert (stored.lost_count, stored.backlog.pending.count) == (2, 0)


def test_message_is_drawn_once_though_it_cannot_be_read_for_a_while(node, shelf, stored):
    draws = iter([False, True] + [False] * 100)
    consumer, outlet = node.subscribe(stored)
    consumer.keep = lambda: next(draws)
    shelf.reason = "too many open files"
    node.ready(consumer, 8)
    for _ in range(5):
        node.advance(10)
    assert (outlet.taken(), stored.backlog.pending.count) == ([], 7)

    shelf.reason = None
    node.advance(10)

    assert first_bytes(outlet) == [b"1"]
    assert stored.backlog.pending.count == 0


def test_sampling_consumer_is_handed_no_more_bytes_at_a_time_than_another(node, shelf, stored):
    consumer, _outlet = node.subscribe(stored)
    consumer.keep = lambda: True
    consumer.rdy = 8

    pieces = deliver(stored, consumer, 8, node.now_ns, 32)[0]

    # Only the last message may go beyond the limit.
    assert sum(map(len, pieces)) < MAX_DELIVERY_BYTES + 101_000
    assert (len(pieces), stored.backlog.pending.count) == (2, 6)
