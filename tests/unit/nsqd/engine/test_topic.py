from nsqd.log.encoder import Batch
from nsqd.log.gaps import Gap, Why
from nsqd.log.ranges import size_of
from tests.support.engine import SECOND, Node


def test_later_channel_can_be_given_what_is_kept(node):
    node.channel("first")
    node.publish(b"1", b"2", b"3")
    topic = node.topic()
    end = topic.log.next_seq

    later = topic.add_channel("later", [(end - 3, end - 2), (end - 1, end)])
    node.publish(b"4")

    assert later.backlog.unfinished(0, end + 1) == [(end - 3, end - 2), (end - 1, end + 1)]
    assert (later.backlog.pending.count, later.message_count) == (3, 3)
    assert topic.low_water() == end - 3


def test_first_channel_gets_topic_backlog_once(node):
    node.publish(b"1", b"2", b"3")
    topic = node.topic()
    end = topic.log.next_seq

    first = topic.add_channel("first", [(end - 3, end)])

    assert (first.backlog.pending.count, first.message_count) == (3, 3)


def test_paused_topic_gives_what_it_keeps_back_only_later(node):
    node.channel("first")
    node.publish(b"1")
    topic = node.topic()
    topic.paused = True
    node.publish(b"2")
    end = topic.log.next_seq

    later = topic.add_channel("later", [(end - 2, end)])
    assert later.backlog.unfinished(0, end) == [(end - 2, end - 1)]

    node.broker.pause_topic(topic, paused=False)
    assert later.backlog.pending.count == 2


def test_held_topic_moves_nothing_until_its_channels_are_known(node):
    topic = node.topic()
    node.broker.set_awaiting_registration(topic, awaiting_registration=True)
    channel = node.channel()
    node.publish(b"1")
    assert channel.backlog.pending.count == 0

    node.broker.set_awaiting_registration(topic, awaiting_registration=False)

    assert channel.backlog.pending.count == 1


def test_messages_put_off_together_are_one_block_and_others_none_of_it(node):
    channel, topic = node.channel(), node.topic()
    first, soon, late = topic.log.next_seq, node.now_ns + SECOND, node.now_ns + 2 * SECOND
    for due_ns in (soon, soon, 0, late, late, late, soon):
        if due_ns:
            topic.stage(b"later", node.now_ns, due_ns)
        else:
            topic.stage(b"now", node.now_ns)
    topic.stage_batch(Batch([b"batch"]), node.now_ns)

    assert [(len(block), block.due_ns) for block in topic.staged()] == [
        (2, soon),
        (1, 0),
        (3, late),
        (1, soon),
        (1, 0),
    ]
    topic.commit()
    assert sorted(channel.backlog.deferred.runs()) == [
        (soon, first, first + 2),
        (soon, first + 6, first + 7),
        (late, first + 3, first + 6),
    ]
    assert [(span.start, span.end) for span in channel.backlog.pending.entries] == [
        (first + 2, first + 3),
        (first + 7, first + 8),
    ]


def test_refused_deferred_message_leaves_no_due_time(node):
    topic = node.topic()
    topic.stage(b"later", node.now_ns, node.now_ns + SECOND)
    topic.abandon()
    topic.stage(b"now", node.now_ns)

    assert [block.due_ns for block in topic.staged()] == [0]


def test_deferred_message_without_channels_is_kept_for_the_first_one(node):
    topic = node.topic()
    topic.stage(b"later", node.now_ns, node.now_ns + 2_000_000_000)
    node.broker.dirty[topic] = None
    node.turn()

    channel = node.channel()
    node.broker.reschedule(channel)
    node.advance(3)

    assert channel.backlog.pending.count == 1


def test_refused_messages_are_not_delivered_and_their_numbers_unused(node, channel):
    topic = node.topic()
    node.publish(b"1")
    end = topic.log.next_seq
    topic.stage(b"lost", node.now_ns)
    topic.staged()
    topic.abandon()

    node.publish(b"2")

    assert channel.backlog.pending.count == 2
    assert topic.log.read(end) == Gap(end, end + 1, Why.UNUSED)
    assert topic.log.read(end + 1).first == end + 1


def test_ephemeral_topic_drops_messages_beyond_memory():
    node = Node(mem_queue_size=10)
    node.publish(*[b"x"] * 15, topic="t#ephemeral")
    topic = node.topic("t#ephemeral")
    channel = node.channel(topic="t#ephemeral")
    assert channel.backlog.pending.count == 10
    consumer, outlet = node.subscribe(channel, rdy=100)
    for message_id, _, _ in outlet.taken():
        node.finish(consumer, message_id)

    topic.trim()

    assert size_of(topic.log.extents()) == 0


def test_last_channel_of_ephemeral_topic_takes_it_along(node):
    channel = node.channel("c#ephemeral", topic="t#ephemeral")
    consumer, _ = node.subscribe(channel)

    node.broker.remove_consumer(consumer)

    assert node.broker.topics == {}


def test_deleting_topic_gives_consumers_whose_connections_end(node):
    consumers = [node.subscribe(node.channel(name))[0] for name in ("a", "b")]

    assert node.broker.delete_topic("t") == consumers
    assert [event.change.value for event in node.broker.events[-3:]] == [
        "channel deleted",
        "channel deleted",
        "topic deleted",
    ]


def test_deleted_channel_is_not_kept_by_its_timer(node, channel):
    node.publish(b"1")
    node.subscribe(channel, rdy=1)
    assert node.broker.next_due_ns() is not None

    node.broker.delete_topic("t")

    assert node.broker.next_due_ns() is None
