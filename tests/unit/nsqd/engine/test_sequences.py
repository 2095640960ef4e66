from nsqd.engine.broker import Broker
from nsqd.engine.limits import Limits
from nsqd.engine.numbering import Sequences
from nsqd.log.encoder import Batch
from nsqd.log.ids import MessageIds

NOW = 1_700_000_000_000_000_000


def test_new_topic_begins_at_clock():
    assert Sequences().first(NOW) == NOW // 1000


def test_clock_that_steps_back_does_not_take_numbers_back():
    sequences = Sequences()
    sequences.note_used(NOW // 1000 + 5)

    assert sequences.first(NOW - 3600 * 10**9) == NOW // 1000 + 5


def test_numbers_are_used_upwards_only():
    sequences = Sequences()
    for end in (10, 30, 20):
        sequences.note_used(end)

    assert sequences.used == 30


def test_recreated_topic_has_numbers_above_the_former_one():
    broker = Broker(MessageIds(1), Limits(), lambda _name: None)
    topic = broker.topic("t", NOW)
    first = topic.log.next_seq
    # More than a million messages per second, and half of them are refused.
    for _ in range(3):
        topic.stage_batch(Batch([b"x"] * 1000), NOW)
        topic.staged()
        broker.commit(topic)
        topic.stage_batch(Batch([b"x"] * 1000), NOW)
        topic.abandon()
    broker.delete_topic("t")

    redelivered = broker.topic("t", NOW + 1000)

    assert redelivered.log.next_seq >= first + 6000


def test_numbers_of_one_topic_are_not_begun_at_by_another_after_it_went():
    broker = Broker(MessageIds(1), Limits(), lambda _name: None)
    broker.topic("a", NOW).stage_batch(Batch([b"x"] * 5000), NOW)
    end = broker.topics["a"].sequence_end
    broker.delete_topic("a")

    assert broker.topic("b", NOW).log.next_seq == end
