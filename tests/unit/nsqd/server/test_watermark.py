import errno

import pytest

from nsqcore.process.logs import Log, LogLevel
from nsqd.engine.bounds import DiskLow
from nsqd.log.disk import Disk
from nsqd.server.health import Health
from nsqd.server.watermark import Watermark
from tests.support.engine import Node


class Filling(Disk):
    """A disk of a thousand bytes, of which *left* are free."""

    def __init__(self):
        self.left = 1000
        self.fails = False

    def free(self, path):
        if self.fails:
            raise OSError(errno.EIO, "no")
        return self.left, 1000


@pytest.fixture
def disk():
    return Filling()


@pytest.fixture
def node():
    node = Node()
    node.publish(b"before")
    return node


@pytest.fixture
def health():
    return Health()


@pytest.fixture
def watch(node, disk, tmp_path, health):
    log = Log("[test] ", LogLevel.FATAL)
    return lambda text: Watermark(text, node.broker, disk, tmp_path, health, log)


@pytest.mark.parametrize("text", ["100", "10%"])
async def test_publishes_are_refused_below_watermark(node, disk, health, watch, text):
    watermark = watch(text)
    await watermark.check()
    node.publish(b"1")

    disk.left = 99
    await watermark.check()
    with pytest.raises(DiskLow, match="disk is nearly full"):
        node.publish(b"2")
    with pytest.raises(DiskLow):
        node.publish(b"2", topic="made.now")
    assert str(health) == "NOK - disk is nearly full"

    disk.left = 103
    await watermark.check()
    node.publish(b"3")
    assert health.ok


async def test_refused_message_creates_no_topic_on_low_disk(node, disk, watch):
    watermark = watch("100")
    disk.left = 99
    await watermark.check()

    with pytest.raises(DiskLow):
        node.broker.topic_to_publish("made.now", node.now_ns)

    assert "made.now" not in node.broker.topics
    assert node.broker.topic_to_publish(node.topic().name, node.now_ns) is node.topic()


@pytest.mark.parametrize(("left", "fails"), [(101, False), (1000, True)])
async def test_publishes_resume_only_when_disk_is_known_to_be_well_above_watermark(
    node, disk, watch, left, fails
):
    watermark = watch("100")
    disk.left = 99
    await watermark.check()

    disk.left, disk.fails = left, fails
    await watermark.check()

    assert node.broker.disk_low


async def test_free_bytes_are_known_without_watermark(node, disk, watch):
    watermark = watch("")
    assert (watermark.free, watermark.total) == (-1, -1)
    disk.left = 0
    await watermark.check()
    disk.fails = True
    await watermark.check()

    assert (watermark.free, watermark.total) == (0, 1000)
    assert not node.broker.disk_low
