"""Moving messages to the dead letters when some of them are lost, or when the disk fails."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from nsqd.engine.dead_letter_queue import REQUEUED
from nsqd.log.disk import Disk
from nsqd.server import dead_letters
from nsqd.server.clock import now_ns
from nsqd.storage.topic_log import store_of
from tests.support.turns import Bench
from tests.support.waiting import eventually


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(dead_letters, "_PAUSE_S", 0.01)

    async def make(disk=None, **pace):
        return Bench(tmp_path, disk, **pace)

    return make


async def test_lost_message_is_counted_once_however_often_its_neighbours_are_tried(bench):
    bench = await bench()
    topic = bench.broker.topic("t", now_ns())
    channel = bench.broker.channel(topic, "c")
    for body in (b"lost", b"there"):
        topic.stage(body, now_ns())
        bench.broker.dirty[topic] = None
        await bench.rest()
        store_of(topic).appender.seal()
    topic.log.release(topic.log.next_seq)
    store_of(topic).segments[0].path.unlink()
    channel.backlog.discard([(0, channel.backlog.end)])
    channel.backlog.dead_letter_queue.add(channel.backlog.end - 2, channel.backlog.end, REQUEUED)

    bench.broker.set_disk_low(True)
    bench.write_batch.dead_letter_mover.move(channel)
    await asyncio.sleep(0.1)
    assert channel.backlog.dead_letter_queue.count == 2
    bench.broker.set_disk_low(False)
    await eventually(lambda: not channel.backlog.dead_letter_queue.count, "they are in the dead letters")

    assert (channel.lost_count, channel.dead_count) == (1, 1)
    assert bench.broker.topics["t.c.dead"].backlog.pending.count == 1
    await bench.rest()
    bench.write_batch.close()


class OneTopic(Disk):
    """Fails the fsyncs of dead letters."""

    def sync(self, fd):
        if ".dead.topic" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)


async def test_dead_letters_whose_fsync_failed_stay_in_channel_and_are_stored_once(bench):
    bench = await bench(OneTopic())
    topic = bench.broker.topic("t", now_ns())
    channel = bench.broker.channel(topic, "c")
    for _ in range(3):
        topic.stage(b"m", now_ns())
    await bench.write_batch.stored(topic, durable=True)
    channel.backlog.discard([(0, channel.backlog.end)])
    channel.backlog.dead_letter_queue.add(channel.backlog.end - 3, channel.backlog.end, REQUEUED)

    for _ in range(3):
        bench.write_batch.dead_letter_mover.move(channel)
        await eventually(lambda: channel.backlog.dead_letter_queue.has_pending, "the move has failed")

    assert bench.broker.topics["t.c.dead"].backlog.pending.count == 3
    assert channel.backlog.dead_letter_queue.count == 3
    await bench.rest()
    bench.write_batch.close()
