"""A message is finished after the sync that makes it durable, and never when that sync failed."""

import asyncio
import threading

import pytest

from nsqcore.process.logs import Log, LogLevel
from nsqtools.nsq_to_file.archive import TopicLog
from nsqtools.nsq_to_file.topic_writer import TopicWriter
from nsqtools.process import Failed
from tests.support.waiting import eventually


class Disk:
    """An archive that notes its calls, and whose syncs fail after the first *syncs*."""

    def __init__(self, story, syncs=1 << 30):
        self.story = story
        self.syncs_left = syncs
        self.unless_stalled = threading.Event()
        self.unless_stalled.set()

    def add(self, bodies):
        self.story.append(f"write {b' '.join(bodies).decode()}")
        return True

    def sync(self):
        self.unless_stalled.wait(60)
        self.syncs_left -= 1
        if self.syncs_left < 0:
            raise OSError(5, "Input/output error")
        self.story.append("sync")
        return True

    def rotate(self):
        pass

    def close(self):
        self.story.append("close")


class Delivered:
    def __init__(self, story, body):
        self.story, self.body = story, body
        self.received_at = asyncio.get_running_loop().time()
        self.is_lost = False

    def finish(self):
        self.story.append(f"finish {self.body.decode()}")


class Reading:
    topic, channel = "t", "c"
    is_starved = False

    def __init__(self, msg_timeout=60.0):
        self.msg_timeout = msg_timeout
        self.told = []

    def change_max_in_flight(self, max_in_flight):
        self.told.append(max_in_flight)


def writer_of(disk):
    return TopicWriter(disk, 3600, 100, TopicLog(Log("", LogLevel.FATAL), "t", "c"))


async def test_messages_are_synced_before_they_are_finished():
    story = []
    writer = writer_of(Disk(story))
    running = asyncio.create_task(writer.run(Reading()))
    for body in (b"a", b"b"):
        writer.handle(Delivered(story, body))
        writer.hang_up()
        await eventually(lambda: story[-1:] == ["close"], "the file is closed")
        story.append("next")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    first, second = (["write " + one, "sync", "finish " + one, "close", "next"] for one in "ab")
    assert story == first + second


async def test_messages_of_failed_sync_are_not_finished():
    story = []
    writer = writer_of(Disk(story, syncs=0))
    writer.handle(Delivered(story, b"a"))
    with pytest.raises(Failed, match="Input/output error"):
        async with asyncio.timeout(20):
            await writer.run(Reading())

    assert story == ["write a"]


async def test_stalled_sync_stops_intake_until_backlog_is_finished():
    story = []
    disk, reading = Disk(story), Reading(msg_timeout=0.1)
    disk.unless_stalled.clear()
    writer = writer_of(disk)
    running = asyncio.create_task(writer.run(reading))
    writer.handle(Delivered(story, b"a"))
    await eventually(lambda: reading.told == [0], "no more is taken")
    writer.handle(Delivered(story, b"b"))
    disk.unless_stalled.set()
    await eventually(lambda: reading.told == [0, 100], "it continues")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert story == ["write a", "sync", "finish a", "write b", "sync", "finish b"]
