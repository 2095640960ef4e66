"""The promises of policies over hours and a day, on a whole node with simulated time."""

import asyncio
from contextlib import contextmanager

import pytest

from nsqd.engine.settings import NOTHING, Settings
from nsqd.log.ranges import size_of, within
from nsqd.storage.data_path import claim
from tests.campaign.client import mpub, sub
from tests.campaign.node import DATA, Node
from tests.campaign.played import World
from tests.support.simulated_disk import SimulatedDisk
from tests.support.simulated_loop import SECOND

pytestmark = pytest.mark.slow

MINUTE = 60
HOUR = 60 * MINUTE
TOPIC = "t"


@contextmanager
def world():
    one = World(3, SimulatedDisk(DATA))
    try:
        yield one
        assert not one.loop.failures
    finally:
        one.close()


async def node_with(one, **settings):
    """A node with this policy for the topic and its channels."""
    found = Settings(**settings)
    node = Node(
        one.disk, one.loop, strict=False, settings_of=lambda name, _: found if name == TOPIC else NOTHING
    )
    await node.start()
    return node


class Publisher:
    """Publishes batches of numbered messages, and keeps the answers."""

    def __init__(self, node):
        self._node = node
        self.sent = 0
        self.answers = []
        self._connect()

    def _connect(self):
        self._client = self._node.connect()
        self._client.on_reply = lambda _kind, data: self.answers.append(data)

    def publish(self, count, size=100):
        if self._client.closed:
            self._connect()
        bodies = [b"%08d " % (self.sent + n) + b"x" * size for n in range(count)]
        self.sent += count
        self._client.say(mpub(TOPIC, bodies))


def consumer(node, channel, taken):
    """A consumer that finishes every message immediately."""
    client = node.connect()

    def take(message_id, _attempts, body):
        taken.append(int(body[:8]))
        node.loop.call_soon(client.say, b"FIN %b\n" % message_id)

    client.on_message = take
    client.say(sub(TOPIC, channel) + b"RDY 100\n")
    return client


def files(disk):
    """The size of the topic's log in bytes."""
    folder = DATA / f"{TOPIC}.topic"
    names = [name for name in disk.names(folder) if name.endswith(".log")]
    return sum(len(disk.read_file(folder / name)) for name in names)


@pytest.mark.parametrize(
    "settings", [{"retain_time_ns": 5 * MINUTE * SECOND}, {"retain_bytes": 50_000}], ids=["time", "bytes"]
)
def test_what_is_kept_under_load_takes_the_same_room_for_hour(settings):
    sizes = []
    kept_s = []

    async def play(one):
        node = await node_with(one, **settings)
        publisher, taken = Publisher(node), []
        consumer(node, "c", taken)
        for second in range(0, 30 * MINUTE, 3):
            publisher.publish(5)
            await asyncio.sleep(3)
            one.disk.steps.clear()
            if second % MINUTE == 0:
                topic = node.broker.topics[TOPIC]
                sizes.append(files(one.disk))
                kept_s.append(size_of(within(claim(topic), topic.log.log_start, topic.log.next_seq)) / 5 * 3)
        assert len(taken) == publisher.sent
        await node.stop()

    with world() as one:
        one.play(lambda: play(one))

    # From here on the log has its full size: it neither grows nor shrinks.
    full = sizes[10:]
    assert max(full) <= 1.4 * min(full)
    if "retain_time_ns" in settings:
        assert min(kept_s[10:]) >= 5 * MINUTE
        assert max(kept_s[10:]) <= 8 * MINUTE
    else:
        assert min(full) >= 50_000
        assert max(full) <= 80_000


def test_topic_unread_for_a_day_stays_in_its_bounds_and_refuses_publishes():
    sizes = []

    async def play(one):
        node = await node_with(one, max_depth=200)
        publisher = Publisher(node)
        for minute in range(8 * 60):
            publisher.publish(7)
            await asyncio.sleep(MINUTE)
            one.disk.steps.clear()
            if minute % 60 == 59:
                sizes.append(files(one.disk))
        topic = node.broker.topics[TOPIC]
        assert topic.backlog.pending.count == 196
        taken = []
        consumer(node, "late", taken)
        await asyncio.sleep(1)
        # Batches that were answered with OK are there, and refused ones are not.
        accepted = [n for n, answer in enumerate(publisher.answers) if answer == b"OK"]
        assert taken == [7 * batch + n for batch in accepted for n in range(7)]
        refused = {answer for answer in publisher.answers if answer != b"OK"}
        assert (len(accepted), len(publisher.answers)) == (28, 8 * 60)
        assert refused == {b"E_MPUB_FAILED MPUB failed topic is full"}
        publisher.publish(7)
        await asyncio.sleep(1)
        assert publisher.answers[-1] == b"OK"
        await node.stop()

    with world() as one:
        one.play(lambda: play(one))
    assert max(sizes) == min(sizes)


def test_topic_unread_for_a_day_has_newest_messages_with_drop_oldest():
    sizes = []

    async def play(one):
        node = await node_with(one, max_bytes=20_000, drop_oldest=True)
        node.broker.channel(node.broker.topic(TOPIC, 1), "c")
        publisher = Publisher(node)
        for minute in range(8 * 60):
            publisher.publish(7)
            await asyncio.sleep(MINUTE)
            one.disk.steps.clear()
            if minute % 60 == 59:
                sizes.append(files(one.disk))
        assert set(publisher.answers) == {b"OK"}
        channel = node.broker.topics[TOPIC].channels["c"]
        taken = []
        dropped = channel.dropped_count
        consumer(node, "c", taken)
        await asyncio.sleep(1)
        assert taken == list(range(dropped, publisher.sent))
        assert 100 < len(taken) < 200
        await node.stop()

    with world() as one:
        one.play(lambda: play(one))
    assert max(sizes[2:]) <= 40_000


def test_hour_is_replayed_into_a_second_channel_while_the_first_goes_on():
    async def play(one):
        node = await node_with(one, retain_time_ns=2 * HOUR * SECOND)
        publisher, first, second = Publisher(node), [], []
        consumer(node, "first", first)
        marks = {}
        for minute in range(100):
            marks[minute] = publisher.sent
            publisher.publish(5)
            await asyncio.sleep(MINUTE)
            one.disk.steps.clear()
        marks[100] = publisher.sent
        created = []
        arguments = {"topic": TOPIC, "channel": "second", "start": "-60m"}
        await node.request("channel/create", arguments, created.append)
        assert created == [True]
        replaying = node.connect()

        def take(message_id, _attempts, body):
            second.append(int(body[:8]))
            # Ten messages a second, so that the replay continues while others are published.
            node.loop.call_later(0.1, replaying.say, b"FIN %b\n" % message_id)

        replaying.on_message = take
        replaying.say(sub(TOPIC, "second") + b"RDY 1\n")
        for _ in range(30):
            publisher.publish(5)
            await asyncio.sleep(2)
        await asyncio.sleep(HOUR // 20)

        assert first == list(range(publisher.sent))
        assert second == list(range(marks[40], publisher.sent))
        await node.stop()

    with world() as one:
        one.play(lambda: play(one))
