"""The log of a topic on disk, and the read-only log of a copy."""

import pytest

from nsqd.engine.topic import Topic
from nsqd.log.disk import Disk
from nsqd.log.frames import Block
from nsqd.log.gaps import Gap
from nsqd.log.ids import MessageIds
from nsqd.log.tail_records import CheckpointPosition
from nsqd.storage.topic_log import TopicLog
from tests.support.stores import FIRST, Shop


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    shop.new(segment=200)
    for body in (b"x" * 300, b"y" * 300, b"z"):
        shop.publish(body)
    shop.store.appender.close()
    shop.log(2).unlink()
    return shop


@pytest.fixture
def store(shop):
    store = TopicLog(Disk(), shop.folder, 0, shop.warnings.append, read_only=True)
    store.recover(CheckpointPosition())
    return store


def test_append_fails(store, shop):
    with pytest.raises(OSError, match="not written to"):
        store.appender.append([], [b"note"], FIRST + 3)

    assert shop.names() == ["00000001.log", "00000003.log"]


def test_missing_message_is_gap_without_warning(store, shop):
    assert isinstance(store.segments.read(FIRST + 1), Gap)
    assert shop.warnings == []


def test_checkpoints_follow_folder(store, shop):
    topic = Topic("t", MessageIds(1), store, 0, 0)
    (shop.folder.parent / "owned").mkdir()
    moved = shop.folder.rename(shop.folder.parent / "owned" / "t.topic")
    store.move_to(moved)
    job = store.checkpoints.start_job(topic, store.checkpoint_position(FIRST + 3))
    job.run(Disk())
    store.checkpoints.end(job)

    assert not shop.folder.exists()
    assert isinstance(store.segments.read(FIRST), Block)
    assert max(path.name for path in moved.iterdir()).startswith("checkpoint.")


def test_checkpoint_makes_no_folder(store, shop):
    for path in shop.folder.iterdir():
        path.unlink()
    shop.folder.rmdir()

    store.restart_if_removed()

    assert not shop.folder.exists()
