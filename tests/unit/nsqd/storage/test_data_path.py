"""Restarts without processes: a broker and its data path are dropped and opened anew."""

import pytest

from nsqd.engine.broker import Broker
from nsqd.engine.consumer import Consumer
from nsqd.engine.ids import MessageIds
from nsqd.engine.limits import Limits
from nsqd.server.delivery import serve
from nsqd.storage import checkpoint
from nsqd.storage.data_path import DataPath, StorageOptions
from nsqd.storage.metadata import TopicMetadata
from tests.support.engine import SECOND, Outlet


class Machine:
    """One nsqd without sockets; ``crash`` forgets everything but the disk."""

    def __init__(self, path):
        self.path = path
        self.now_ns = 1_700_000_000 * SECOND
        self.warnings = []
        self.start()

    def start(self, metadata=()):
        self.data = DataPath(self.path, StorageOptions(max_segment_bytes=1000), self.warnings.append)
        self.broker = Broker(MessageIds(1), Limits(mem_queue_size=3), self.data)
        self.data.restore(self.broker, list(metadata), self.now_ns)

    def crash(self, seconds=1, metadata=()):
        self.data.close()
        self.now_ns += seconds * SECOND
        self.start(metadata)

    def save(self, clean=False):
        for topic in self.broker.topics.values():
            self.data.store(topic.name).begin_checkpoint(checkpoint.encode(topic, clean=clean))()

    def publish(self, *bodies, topic="t", defer_s=0):
        target = self.broker.topic(topic, self.now_ns)
        for body in bodies:
            if defer_s:
                target.publish_deferred(body, self.now_ns + defer_s * SECOND, self.now_ns)
            else:
                target.publish(body, self.now_ns)
        self.data.store(topic).append(target.staged())
        self.broker.commit(target)

    def channel(self, name="c", topic="t"):
        return self.broker.channel(self.broker.topic(topic, self.now_ns), name)

    def consume(self, count, name="c"):
        """Deliver *count* messages to a new consumer: it, and (attempts, body) of each."""
        outlet = Outlet()
        consumer = Consumer(outlet, 60 * SECOND)
        channel = self.channel(name)
        channel.subscribe(consumer, 0)
        consumer.rdy = count
        channel.refresh(consumer)
        self.broker.expire(self.now_ns)
        serve(self.broker, channel, self.now_ns)
        return consumer, [(attempts, body) for _, attempts, body in outlet.taken()]


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.data.close()


def test_messages_without_a_channel_wait_for_the_first_one_after_a_crash(machine):
    machine.publish(*[b"%d" % n for n in range(10)])

    machine.crash()

    assert machine.consume(20)[1] == [(1, b"%d" % n) for n in range(10)]


def test_after_a_crash_a_channel_owes_what_came_after_its_checkpoint(machine):
    channel = machine.channel()
    machine.publish(b"1", b"2")
    channel.commit(machine.broker.topics["t"].log.next_seq)
    machine.save()
    machine.publish(b"3")

    machine.crash()

    assert machine.consume(10)[1] == [(1, b"3")]


def test_each_channel_owes_its_own(machine):
    done = machine.channel("done")
    machine.channel("behind")
    machine.publish(b"1", b"2")
    done.commit(machine.broker.topics["t"].log.next_seq)
    machine.save()

    machine.crash()

    assert machine.consume(10, "done")[1] == []
    assert machine.consume(10, "behind")[1] == [(1, b"1"), (1, b"2")]


def test_what_was_in_flight_is_delivered_again_with_one_more_attempt(machine):
    machine.channel()
    machine.publish(b"1", b"2")
    machine.consume(1)
    machine.save()

    machine.crash()

    assert machine.consume(10)[1] == [(2, b"1"), (1, b"2")]


@pytest.mark.parametrize("checkpointed", [True, False])
def test_deferred_messages_keep_their_time(machine, checkpointed):
    machine.channel()
    machine.save()
    machine.publish(b"now")
    machine.publish(b"later", defer_s=30)
    machine.publish(b"now too")
    if checkpointed:
        machine.save()

    machine.crash(seconds=20)
    consumer, first = machine.consume(10)
    machine.now_ns += 15 * SECOND
    machine.broker.leave(consumer)

    assert sorted(body for _, body in first) == [b"now", b"now too"]
    assert sorted(body for _, body in machine.consume(10)[1]) == [b"later", b"now", b"now too"]


def test_a_clean_stop_continues_the_sequence_and_a_crash_skips_ahead(machine):
    machine.publish(b"1")
    end = machine.broker.topics["t"].log.next_seq
    machine.save(clean=True)
    machine.crash()
    assert machine.broker.topics["t"].log.next_seq == end

    machine.publish(b"2")
    machine.crash(seconds=5)
    assert machine.broker.topics["t"].log.next_seq == machine.now_ns // 1000


def test_a_damaged_checkpoint_delivers_everything_again(machine):
    machine.channel()
    machine.publish(b"1")
    machine.save()
    path = machine.path / "t.topic" / "checkpoint"
    path.write_bytes(path.read_bytes()[:-3])

    machine.crash()

    assert machine.broker.topics["t"].backlog.depth == 1
    assert "all that is on disk is delivered again" in machine.warnings[0]


def test_metadata_adds_what_has_no_folder_and_leaves_out_bad_names(machine):
    machine.publish(b"1")
    listed = [
        TopicMetadata("t", True, [("new", True), ("bad$", False)]),
        TopicMetadata("bad$"),
        TopicMetadata("u", True),
    ]

    machine.crash(metadata=listed)

    topics = machine.broker.topics
    assert sorted(topics) == ["t", "u"]
    assert (topics["t"].paused, topics["u"].paused) == (False, True)
    assert [(c.name, c.paused) for c in topics["t"].channels.values()] == [("new", True)]
    assert machine.warnings == [
        "skipping creation of invalid channel bad$",
        "skipping creation of invalid topic bad$",
    ]


def test_a_paused_topic_keeps_later_messages_to_itself(machine):
    channel = machine.channel()
    machine.publish(b"1")
    machine.broker.topics["t"].paused = True
    machine.save()
    machine.publish(b"2")

    machine.crash()

    topic = machine.broker.topics["t"]
    assert (topic.paused, topic.backlog.depth, topic.channels["c"].depth) == (True, 1, 1)
    assert channel is not topic.channels["c"]


def test_a_half_removed_topic_does_not_come_back(machine):
    machine.publish(b"1")
    machine.data.close()
    (machine.path / "t.topic").rename(machine.path / "t.topic.deleted")

    machine.crash()

    assert machine.broker.topics == {}
    assert list(machine.path.iterdir()) == []
