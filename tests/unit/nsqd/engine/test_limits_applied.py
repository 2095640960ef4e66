"""Messages that a policy drops, expires or makes dead letters, in an engine without sockets."""

import pytest

from nsqd.engine.bounds import MAX_EXAMINED
from nsqd.engine.dead_letter_queue import EXPIRED, REQUEUED, RETURNED, TIMED_OUT
from nsqd.engine.settings import NOTHING, Settings
from nsqd.log.encoder import Batch
from tests.support.engine import SECOND, Node, bodies, counts


def hold(node, **said):
    """Apply a policy with these settings to everything."""
    node.broker.apply(lambda _topic, _channel: Settings(**said))
    node.turn()


def ids_of(outlet):
    return [message_id for message_id, _, _ in outlet.taken()]


def requeue(node, channel, consumer, message_id, delay_ns=0):
    due_ns = channel.requeue(node.broker.ids.decode(message_id), consumer, delay_ns, node.now_ns)
    if due_ns:
        node.broker.defer(channel, node.broker.ids.decode(message_id), due_ns)
    node.broker.serve(channel)
    node.ready(consumer, consumer.rdy)


def moves(channel):
    return [(move.end - move.start, move.reason) for move in channel.backlog.dead_letter_queue.take(100)]


# --- bounds ---


def test_messages_in_flight_count_and_are_not_dropped(node, channel):
    hold(node, max_depth=3, drop_oldest=True)
    node.publish(b"1", b"2")
    consumer, outlet = node.subscribe(channel, rdy=2)
    first, second = ids_of(outlet)

    node.publish(b"3", b"4")

    assert (counts(channel), channel.dropped_count) == ((1, 2, 0), 1)
    node.finish(consumer, first)
    node.finish(consumer, second)
    assert bodies(outlet) == [b"4"]


def test_bound_that_comes_later_holds_until_it_is_gone(node, channel):
    node.publish(b"1", b"2", b"3")
    hold(node, max_depth=2, drop_oldest=True)
    assert (channel.backlog.pending.count, channel.dropped_count) == (2, 1)

    node.broker.apply(lambda _topic, _channel: NOTHING)
    node.publish(b"4", b"5")

    assert channel.backlog.pending.count == 4


def test_topic_without_channel_is_bounded(node):
    hold(node, max_depth=2, drop_oldest=True)

    node.publish(b"1", b"2", b"3")

    topic = node.topic()
    assert (topic.backlog.pending.count, topic.dropped_count) == (2, 1)
    _, outlet = node.subscribe(node.channel(), rdy=10)
    assert bodies(outlet) == [b"2", b"3"]


# --- time to live ---


def test_expired_message_is_not_delivered(node, channel):
    hold(node, ttl_ns=10 * SECOND)
    node.publish(b"old")
    node.advance(6)
    node.publish(b"young")
    node.advance(5)

    _, outlet = node.subscribe(channel, rdy=10)

    assert bodies(outlet) == [b"young"]
    assert (channel.expired_count, channel.backlog.count()) == (1, 1)


def test_messages_expire_though_nobody_takes_any(node, channel):
    hold(node, ttl_ns=10 * SECOND)
    node.publish(b"1", b"2")

    assert node.broker.next_due_ns() == node.now_ns + 10 * SECOND
    node.advance(10)

    assert (channel.backlog.pending.count, channel.expired_count) == (0, 2)
    assert channel.backlog.lowest() is None


@pytest.mark.parametrize("finished", [True, False])
def test_messages_expire_also_behind_those_from_before_clock_was_set_back(node, channel, finished):
    hold(node, ttl_ns=600 * SECOND)
    node.publish(b"future")
    if finished:
        consumer, outlet = node.subscribe(channel, rdy=1)
        node.finish(consumer, *ids_of(outlet))
        node.ready(consumer, 0)
    node.broker.wall.offset_ns -= 3600 * SECOND
    node.publish(b"1")
    node.advance(300)
    node.publish(b"2")
    node.advance(299)
    assert channel.backlog.pending.count == 3 - finished

    node.advance(1)

    assert (channel.backlog.pending.count, channel.expired_count) == (1, 2 - finished)
    node.advance(300)
    assert (channel.backlog.pending.count, channel.expired_count) == (0, 3 - finished)


def test_long_backlog_from_before_clock_was_set_back_is_not_looked_through():
    node = Node(mem_queue_size=2 * MAX_EXAMINED)
    channel = node.channel()
    hold(node, ttl_ns=600 * SECOND)
    node.topic().stage_batch(Batch([b"future"] * MAX_EXAMINED), node.now_ns)
    node.publish()
    node.broker.wall.offset_ns -= 3600 * SECOND
    node.publish(b"1")
    node.advance(600)
    assert channel.backlog.pending.count == MAX_EXAMINED + 1
    assert node.now_ns < channel.expiry_ns <= node.now_ns + 600 * SECOND

    consumer, outlet = node.subscribe(channel, rdy=1)
    node.finish(consumer, *ids_of(outlet))
    node.ready(consumer, 0)
    node.advance(600)

    assert (channel.backlog.pending.count, channel.expired_count) == (0, MAX_EXAMINED)


@pytest.mark.parametrize("prolonged", [False, True])
def test_requeued_message_expires_by_present_time_to_live(node, channel, prolonged):
    hold(node, ttl_ns=10 * SECOND)
    node.publish(b"1")
    consumer, outlet = node.subscribe(channel, rdy=1)
    (message_id,) = ids_of(outlet)
    node.publish(b"2")
    node.advance(11)

    if prolonged:
        hold(node, ttl_ns=60 * SECOND)
    requeue(node, channel, consumer, message_id)

    assert (bodies(outlet), channel.expired_count) == (([b"1"], 1) if prolonged else ([], 2))


def test_requeue_before_expiry_checks_no_pending_messages(node, channel):
    hold(node, ttl_ns=10 * SECOND)
    node.publish(b"1", b"2", b"3")
    consumer, outlet = node.subscribe(channel, rdy=2)
    first, second = ids_of(outlet)
    looked_ns = channel.expiry_ns

    requeue(node, channel, consumer, first)
    channel.requeue(node.broker.ids.decode(second), consumer, SECOND, node.now_ns)
    node.broker.reschedule(channel)
    node.ready(consumer, 2)
    node.advance(2)

    assert channel.expiry_ns == looked_ns > node.now_ns
    assert bodies(outlet) == [b"3", b"1"]
    assert channel.backlog.pending.count == 1
    node.advance(9)
    assert (channel.backlog.pending.count, channel.expired_count) == (0, 1)


def expire_later(node, channel):
    """Publish a message that expires in ten seconds, so that the channel checks for expiry no earlier."""
    node.publish(b"young")
    node.advance(0.2)
    assert channel.expiry_ns > node.now_ns


def test_deferred_one_that_has_expired_goes_when_it_is_due(node, channel):
    hold(node, ttl_ns=10 * SECOND)
    topic = node.topic()
    topic.stage(b"old", node.now_ns, node.now_ns + 15 * SECOND)
    node.broker.dirty[topic] = None
    node.turn()
    node.advance(12)
    expire_later(node, channel)

    node.advance(3)

    assert channel.expired_count == 1
    _, outlet = node.subscribe(channel, rdy=10)
    assert bodies(outlet) == [b"young"]


def test_topic_backlog_expires_when_topic_is_unpaused(node, channel):
    hold(node, ttl_ns=10 * SECOND)
    expire_later(node, channel)
    node.broker.pause_topic(node.topic(), paused=True)
    node.publish(b"old")
    node.advance(9)
    channel.expiry_ns = node.now_ns + 9 * SECOND
    node.advance(2)

    node.broker.pause_topic(node.topic(), paused=False)
    node.turn()

    assert (channel.backlog.pending.count, channel.expired_count) == (0, 2)


def test_seek_to_expired_messages_delivers_none(node, channel):
    node.publish(b"old")
    consumer, outlet = node.subscribe(channel, rdy=1)
    node.finish(consumer, *ids_of(outlet))
    node.ready(consumer, 0)
    hold(node, ttl_ns=10 * SECOND)
    node.advance(11)
    expire_later(node, channel)
    start, end = channel.backlog.end - 2, channel.backlog.end

    node.broker.seek_channel(node.topic(), channel, start, [(start, end)])
    node.turn()

    assert (channel.backlog.pending.count, channel.expired_count) == (1, 1)


def test_expired_message_becomes_dead_letter_by_policy(node, channel):
    hold(node, ttl_ns=10 * SECOND, dead_letter_topic="dead")
    node.publish(b"1", b"2")

    node.advance(10)

    assert (channel.backlog.pending.count, channel.expired_count, channel.backlog.count()) == (0, 2, 2)
    assert moves(channel) == [(2, EXPIRED)]


def test_time_to_live_that_comes_later_holds_for_what_is_there(node, channel):
    node.publish(b"1")
    node.advance(5)

    hold(node, ttl_ns=SECOND)

    assert (channel.backlog.pending.count, channel.expired_count) == (0, 1)


# --- attempts ---


@pytest.fixture
def poisoned(node, channel):
    """A channel whose only message goes to the dead letters."""
    hold(node, max_attempts=1)
    node.publish(b"poison")
    consumer, outlet = node.subscribe(channel, rdy=1)
    requeue(node, channel, consumer, *ids_of(outlet))
    return channel


def test_dead_letter_is_unfinished_until_it_is_stored(node, poisoned):
    backlog, seq = poisoned.backlog, node.topic().log.next_seq - 1
    assert backlog.unfinished(0, seq + 1) == [(seq, seq + 1)]

    (move,) = backlog.dead_letter_queue.take(10)
    poisoned.finish_dead(move)

    assert backlog.unfinished(0, seq + 1) == []
    assert (backlog.count(), poisoned.dead_count, backlog.attempts) == (0, 1, {})


@pytest.mark.parametrize(
    "finish", [lambda channel: channel.empty(), lambda channel: channel.commit(channel.backlog.end)]
)
def test_emptying_and_committing_include_dead_letters(poisoned, finish):
    finish(poisoned)

    assert (poisoned.backlog.count(), poisoned.backlog.dead_letter_queue.count) == (0, 0)


def test_delay_of_client_does_not_keep_dead_letter_alive(node, channel):
    hold(node, max_attempts=1)
    node.publish(b"poison")
    consumer, outlet = node.subscribe(channel, rdy=1)

    requeue(node, channel, consumer, *ids_of(outlet), delay_ns=SECOND)

    assert moves(channel) == [(1, REQUEUED)]


def test_time_outs_count_like_requeues(node, channel):
    hold(node, max_attempts=2)
    node.publish(b"1", b"2")
    node.subscribe(channel, rdy=2, msg_timeout=1)

    node.advance(1)
    assert channel.backlog.in_flight.count == 2
    node.advance(1)

    assert channel.backlog.in_flight.count == 0
    assert moves(channel) == [(1, TIMED_OUT), (1, TIMED_OUT)]


def test_consumer_that_leaves_does_not_make_dead_letters_at_once(node, channel):
    hold(node, max_attempts=1)
    node.publish(b"1")

    for _ in range(2):
        consumer, _ = node.subscribe(channel, rdy=1)
        assert channel.backlog.in_flight.count == 1
        node.broker.remove_consumer(consumer)
        node.turn()

    assert moves(channel) == [(1, RETURNED)]
    assert channel.backlog.pending.count == 0


def test_message_in_its_own_dead_letter_topic_stays(node):
    channel = node.channel(topic="dead")
    hold(node, max_attempts=1, ttl_ns=9 * SECOND, dead_letter_topic="dead")
    node.publish(b"1", topic="dead")
    consumer, outlet = node.subscribe(channel, rdy=1)

    requeue(node, channel, consumer, *ids_of(outlet))
    assert len(ids_of(outlet)) == 1
    node.broker.remove_consumer(consumer)
    node.advance(9)

    assert (channel.backlog.count(), channel.expired_count) == (0, 1)


# --- delays ---


def test_retry_delay_doubles_with_each_attempt(node, channel):
    hold(node, retry_delay_ns=SECOND, retry_delay_max_ns=3 * SECOND)
    node.publish(b"1")
    consumer, outlet = node.subscribe(channel, rdy=1)

    for delay in (1, 2, 3, 3):
        requeue(node, channel, consumer, *ids_of(outlet))
        node.advance(delay - 0.5)
        assert (channel.backlog.deferred.count, outlet.taken()) == (1, [])
        node.advance(0.6)
        assert channel.backlog.deferred.count == 0


@pytest.fixture
def retried(node, channel):
    """A consumer with the message of a channel that delays what comes back by five seconds."""
    hold(node, retry_delay_ns=5 * SECOND, retry_delay_max_ns=5 * SECOND)
    node.publish(b"1")
    return node.subscribe(channel, rdy=1, msg_timeout=1)


def test_timed_out_message_is_delayed(node, channel, retried):
    node.advance(1)

    assert counts(channel) == (0, 0, 1)


def test_delay_of_client_replaces_that_of_policy(node, channel, retried):
    consumer, outlet = retried
    requeue(node, channel, consumer, *ids_of(outlet), delay_ns=60 * SECOND)
    node.advance(6)

    assert counts(channel) == (0, 0, 1)


def test_message_of_leaving_consumer_is_not_delayed(node, channel, retried):
    node.broker.remove_consumer(retried[0])

    assert counts(channel) == (1, 0, 0)
