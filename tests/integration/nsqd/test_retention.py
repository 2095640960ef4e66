"""Retained messages take the same room while publishes go on, on a whole node with simulated time."""

import asyncio

import pytest

from nsqd.engine.settings import NOTHING, Settings
from nsqd.log.ranges import size_of, within
from nsqd.storage.data_path import claim
from tests.campaign.client import mpub, sub
from tests.campaign.node import DATA, Node
from tests.campaign.played import World
from tests.support.simulated_disk import SimulatedDisk
from tests.support.simulated_loop import SECOND

MINUTE = 60
BATCH = 5
PAUSE_S = 3


def files(disk):
    """The size of the topic's log in bytes."""
    folder = DATA / "t.topic"
    return sum(len(disk.read_file(folder / name)) for name in disk.names(folder) if name.endswith(".log"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"retain_time_ns": 5 * MINUTE * SECOND}, {"retain_bytes": 50_000}], ids=["time", "bytes"]
)
def test_retained_messages_take_the_same_room_under_load(settings):
    sizes, retained_s, taken = [], [], []
    policy = Settings(**settings)

    async def play(world):
        settings_of = {"t": policy}.get
        node = Node(
            world.disk, world.loop, strict=False, settings_of=lambda name, _: settings_of(name, NOTHING)
        )
        await node.start()
        publisher, consumer = node.connect(), node.connect()
        publisher.on_reply = lambda *_: None

        def take(message_id, _attempts, body):
            taken.append(body)
            node.loop.call_soon(consumer.say, b"FIN %b\n" % message_id)

        consumer.on_message = take
        consumer.say(sub("t", "c") + b"RDY 100\n")
        for second in range(0, 30 * MINUTE, PAUSE_S):
            publisher.say(mpub("t", [b"%08d %b" % (second, b"x" * 100)] * BATCH))
            await asyncio.sleep(PAUSE_S)
            world.disk.steps.clear()
            if second % MINUTE == 0:
                topic = node.broker.topics["t"]
                sizes.append(files(world.disk))
                stored = within(claim(topic), topic.log.log_start, topic.log.next_seq)
                retained_s.append(size_of(stored) / BATCH * PAUSE_S)
        await node.stop()

    world = World(3, SimulatedDisk(DATA))
    try:
        world.play(lambda: play(world))
        assert not world.loop.failures
    finally:
        world.close()

    assert len(taken) == BATCH * 30 * MINUTE / PAUSE_S
    # From here on the log has its full size: it neither grows nor shrinks.
    assert max(sizes[10:]) <= 1.4 * min(sizes[10:])
    if "retain_time_ns" in settings:
        assert min(retained_s[10:]) >= 5 * MINUTE
        assert max(retained_s[10:]) <= 8 * MINUTE
    else:
        assert min(sizes[10:]) >= 50_000
        assert max(sizes[10:]) <= 80_000
