"""The channels of the nsqd in memory."""

from nsqclient.testing._queues import Channel, Stored, Topic


class Reader:
    def __init__(self, most=100):
        self.got = []
        self.most = most
        self.late = 0

    @property
    def wants(self):
        return len(self.got) < self.most

    def deliver(self, message):
        self.got.append((message.body, message.attempts))

    def timed_out(self):
        self.late += 1


def stored(body):
    return Stored(b"%016x" % hash(body), body, {}, 0)


def test_readers_have_their_turns_as_far_as_they_want_some():
    channel, one, two = Channel(), Reader(1), Reader()
    channel.readers += [one, two]
    for body in (b"a", b"b", b"c"):
        channel.put(stored(body))

    channel.pump(0, 60)

    assert one.got == [(b"a", 1)]
    assert two.got == [(b"b", 1), (b"c", 1)]


def test_message_that_is_not_answered_in_time_comes_again():
    channel, reader = Channel(), Reader()
    channel.readers.append(reader)
    channel.put(stored(b"a"))
    channel.pump(0, 60)

    channel.expire(59)
    assert reader.late == 0
    channel.expire(60)
    assert reader.late == 1
    channel.pump(60, 60)

    assert reader.got == [(b"a", 1), (b"a", 2)]
    assert channel.timed_out == 1


def test_deferred_messages_wait_in_order_of_their_times():
    channel, reader = Channel(), Reader()
    channel.readers.append(reader)
    channel.put(stored(b"late"), due=20)
    channel.put(stored(b"soon"), due=10)

    channel.expire(30)
    channel.pump(30, 60)

    assert [body for body, _ in reader.got] == [b"soon", b"late"]


def test_what_a_reader_had_that_left_waits_again_and_only_it_can_answer():
    channel, reader, other = Channel(), Reader(), Reader()
    channel.readers.append(reader)
    message = stored(b"a")
    channel.put(message)
    channel.pump(0, 60)

    assert channel.answered(message.id, other) is None
    channel.remove_reader(reader)

    assert list(channel.waiting) == [message]
    assert channel.in_flight == {}


def test_first_channel_gets_what_was_published_before_and_each_has_its_own_copy():
    topic = Topic()
    topic.publish(stored(b"early"), None)
    first = topic.channel("first")
    second = topic.channel("second")
    topic.publish(stored(b"later"), None)

    assert [message.body for message in first.waiting] == [b"early", b"later"]
    assert [message.body for message in second.waiting] == [b"later"]
    assert first.waiting[1] is not second.waiting[0]
