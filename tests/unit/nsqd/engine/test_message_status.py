from nsqd.engine.message_status import MessageState, StateFilter, StatusSnapshot
from tests.support.engine import SECOND


def bodies(count):
    return [b"%d" % n for n in range(count)]


def states(node, channel):
    topic = node.topic()
    first, end = topic.log.log_start, topic.log.next_seq
    found = StatusSnapshot(channel, topic.backlog, range(first, end)).resolve()
    for state in MessageState:
        ranges = StateFilter(channel, topic.backlog, state).ranges(first, end)
        told = [seq for low, high in ranges for seq in range(low, high)]
        assert told == [first + place for place, one in enumerate(found) if one.state is state]
    return found


def test_status_in_flight_has_consumer_and_deadline(node, channel):
    consumer, outlet = node.subscribe(channel, rdy=3)
    node.publish(*bodies(4))
    node.finish(consumer, outlet.taken()[1][0])
    node.ready(consumer, 0)

    found = states(node, channel)

    assert [one.state for one in found] == [
        MessageState.IN_FLIGHT,
        MessageState.FINISHED,
        MessageState.IN_FLIGHT,
        MessageState.IN_FLIGHT,
    ]
    assert found[0].consumer is consumer
    assert (found[0].since_ns, found[0].until_ns) == (node.now_ns, node.now_ns + 60 * SECOND)


def test_run_is_not_broken_by_looking_at_its_middle(node, channel):
    consumer, _ = node.subscribe(channel, rdy=5)
    node.publish(*bodies(5))

    states(node, channel)

    first = node.topic().log.log_start
    assert channel.backlog.in_flight.unbroken(first, consumer) == 5


def test_requeued_message_has_last_ordinal(node, channel):
    consumer, outlet = node.subscribe(channel, rdy=1)
    node.publish(*bodies(3))
    (message_id, _, _) = outlet.taken()[0]
    consumer.rdy = 0
    channel.requeue(node.broker.ids.decode(message_id), consumer, 0, node.now_ns)

    assert [one.ordinal for one in states(node, channel)] == [3, 1, 2]


def test_status_deferred_has_due_time(node, channel):
    topic = node.topic()
    topic.stage(b"later", node.now_ns, due_ns=node.now_ns + 9 * SECOND)
    node.publish(b"now")

    found = states(node, channel)

    assert [one.state for one in found] == [MessageState.DEFERRED, MessageState.PENDING]
    assert found[0].until_ns == node.now_ns + 9 * SECOND


def test_topic_backlog_message_has_no_ordinal(node, channel):
    node.publish(b"a")
    node.broker.pause_topic(node.topic(), paused=True)
    node.publish(b"b")
    node.topic().stage(b"c", node.now_ns, due_ns=node.now_ns + SECOND)
    node.publish()

    found = states(node, channel)

    assert [(one.state, one.ordinal) for one in found] == [
        (MessageState.PENDING, 1),
        (MessageState.PENDING, 0),
        (MessageState.DEFERRED, 0),
    ]


def test_deferred_messages_are_listed_in_order_in_which_they_fall_due(node, channel):
    topic = node.topic()
    for delay in (5, 3, 9, 3):
        topic.stage(b"x", node.now_ns, due_ns=node.now_ns + delay * SECOND)
    node.publish()
    first = topic.log.log_start
    expected = [(node.now_ns + delay * SECOND, first + n) for delay, n in ((3, 1), (3, 3), (5, 0), (9, 2))]

    sorting = StateFilter(channel, topic.backlog, MessageState.DEFERRED)

    assert sorting.by_due_time((0, 0), 10) == expected
    assert sorting.by_due_time((0, 0), 2) == expected[:2]
    for place, cursor in enumerate(expected):
        assert sorting.by_due_time(cursor, 10) == expected[place + 1 :]


def test_list_goes_on_in_middle_of_what_is_due_together(node, channel):
    topic = node.topic()
    due_ns = node.now_ns + SECOND
    for _ in range(5):
        topic.stage(b"x", node.now_ns, due_ns=due_ns)
    node.publish()
    first = topic.log.log_start

    sorting = StateFilter(channel, topic.backlog, MessageState.DEFERRED)

    assert sorting.by_due_time((due_ns, first + 1), 2) == [(due_ns, first + 2), (due_ns, first + 3)]
    assert sorting.by_due_time((due_ns, first + 4), 2) == []
