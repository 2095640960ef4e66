from types import SimpleNamespace

import pytest

from nsqd.engine.settings import Settings
from nsqd.engine.topic import Topic
from nsqd.log.disk import Disk
from nsqd.log.gaps import EVERYTHING
from nsqd.log.ids import MessageIds
from nsqd.log.segment import SegmentState
from nsqd.storage.retention import RetentionLimit, apply_retention, retention_start
from nsqd.storage.topic_log import TopicLog
from tests.support.descriptors import open_below
from tests.support.stores import finish

SECOND = 1_000_000_000
BASE_NS = 1_700_000_000 * SECOND


class RetainedTopic:
    """A topic on disk whose messages are published, finished and removed as the server does it."""

    def __init__(self, path, **settings):
        self.store = TopicLog(Disk(), path / "t.topic", 1 << 30, lambda _: None, origin=1)
        self.topic = Topic(
            "t", MessageIds(1), self.store, 1000, 10, settings_of=lambda *_: Settings(**settings)
        )
        self.channel = self.topic.add_channel("c")

    def publish(self, second, size=100):
        self.topic.stage(b"x" * size, BASE_NS + second * SECOND)
        blocks = self.topic.staged()
        self.store.appender.append(blocks, self.topic.staged_notes(), self.topic.log.next_seq)
        self.topic.commit()

    def finish_all(self):
        self.channel.commit(self.topic.log.next_seq)

    def look(self, second):
        """The number of messages that are kept at this second."""
        apply_retention(self.topic, BASE_NS + second * SECOND)
        self.store.cleaner.drop_below(self.topic.unwanted_below(), self.store.segments.notes)
        self.store.cleaner.remove_files()
        return self.topic.log.next_seq - min(self.topic.unwanted_below(), self.topic.log.next_seq)


@pytest.fixture
def kept(tmp_path):
    made = []

    def kept(**settings):
        made.append(RetainedTopic(tmp_path, **settings))
        return made[-1]

    yield kept
    for one in made:
        one.store.appender.close()


def test_finished_messages_stay_for_their_time_and_then_go_as_whole_files(kept):
    log = kept(retain_time_ns=80 * SECOND)
    most = 0
    for second in range(400):
        log.publish(second)
        log.finish_all()
        count = log.look(second)
        assert count >= min(second, 80)
        most = max(most, count)

    assert most <= 80 + 2 * 10 + 2


def test_messages_stay_for_window_of_their_ids_whatever_else_is_kept(kept):
    log = kept(dedup_window_ns=80 * SECOND, retain_bytes=1)
    for second in range(200):
        log.publish(second)
        log.finish_all()
        assert min(second, 80) <= log.look(second) <= 80 + 2 * 10 + 2


def test_quiet_topic_loses_all_retained_messages_in_time(kept):
    log = kept(retain_time_ns=80 * SECOND)
    log.publish(0)
    log.publish(5)
    log.finish_all()

    counts = [log.look(second) for second in (1, 10, 79, 80, 84, 85)]

    assert counts == [2, 2, 2, 2, 2, 0]
    assert not [path for path in log.store.segments.folder.iterdir() if path.suffix == ".log"]


def test_quiet_topic_keeps_no_file_open(kept, tmp_path):
    before = len(open_below(tmp_path))
    log = kept(retain_time_ns=80 * SECOND)
    log.publish(0)
    finish(log.store, log.store.appender.begin_sync())
    log.publish(1)
    job = log.store.appender.begin_sync()
    log.look(11)
    assert [one.state for one in log.store.segments] == [SegmentState.SEALED]
    finish(log.store, job)
    log.publish(12)
    finish(log.store, log.store.appender.begin_sync())

    log.look(30)

    assert [one.state for one in log.store.segments] == [SegmentState.SYNCED, SegmentState.SYNCED]
    assert len(open_below(tmp_path)) == before
    assert log.store.appender.begin_sync() is None
    assert len([path for path in log.store.segments.folder.iterdir() if path.suffix == ".index"]) == 2


def test_newest_bytes_stay_and_no_more_files_than_that(kept):
    log = kept(retain_bytes=8 << 20)
    sizes = []
    for second in range(200):
        log.publish(second, 200_000)
        log.finish_all()
        log.look(second)
        sizes.append(log.store.segments.size)

    assert max(sizes) <= (8 << 20) + 2 * (1 << 20) + 400_000
    assert min(sizes[60:]) >= 8 << 20


def test_pending_messages_stay_whatever_policy_says(kept):
    log = kept(retain_time_ns=80 * SECOND)
    log.publish(0)

    assert [log.look(second) for second in (1, 1000)] == [1, 1]


def test_retention_keeps_all_before_first_check(kept):
    log = kept(retain_time_ns=80 * SECOND)
    log.publish(0)
    log.finish_all()

    assert log.topic.unwanted_below() == 0


def test_retention_without_policy_keeps_nothing(kept):
    log = kept()
    log.publish(0)
    log.finish_all()

    assert log.topic.retention_start == EVERYTHING
    assert log.topic.wanted(0, log.topic.log.next_seq) == []


def ages(*segments):
    """Segments of (size, began), ten sequences each."""
    return [
        SimpleNamespace(first=10 * n, next=10 * n + 10, size=size, began_ns=began)
        for n, (size, began) in enumerate(segments, 1)
    ]


@pytest.mark.parametrize(
    ("kept", "now", "newest", "expected"),
    [
        # By time: a segment goes when the next segment began at least *time_ns* ago.
        (RetentionLimit(time_ns=100), 150, 150, 10),
        (RetentionLimit(time_ns=100), 199, 150, 10),
        (RetentionLimit(time_ns=100), 200, 150, 20),
        (RetentionLimit(time_ns=100), 300, 250, 30),
        # The last segment goes when its newest message is that old.
        (RetentionLimit(time_ns=100), 349, 250, 30),
        (RetentionLimit(time_ns=100), 350, 250, 40),
        # By size: a segment goes when the segments behind it have at least *size* bytes.
        (RetentionLimit(size=5), 0, 0, 30),
        (RetentionLimit(size=50), 0, 0, 30),
        (RetentionLimit(size=51), 0, 0, 20),
        (RetentionLimit(size=100), 0, 0, 20),
        (RetentionLimit(size=101), 0, 0, 10),
        # Of two bounds the stricter one decides.
        (RetentionLimit(time_ns=100, size=5), 150, 150, 30),
        (RetentionLimit(time_ns=100, size=1000), 200, 150, 20),
    ],
)
def test_whole_segments_are_kept_by_time_and_by_size(kept, now, newest, expected):
    assert retention_start(ages((50, 50), (50, 100), (50, 200)), kept, now, lambda: newest) == expected


def test_log_without_segments_retains_nothing():
    assert retention_start([], RetentionLimit(time_ns=1), 5, lambda: 0) == 0


def test_newest_message_is_read_only_when_index_says_too_little():
    def newest():
        raise AssertionError

    assert retention_start(ages((50, 50), (50, 100)), RetentionLimit(time_ns=100), 180, newest) == 10


def test_segment_ends_while_it_is_part_of_what_is_kept():
    by_time, by_size = RetentionLimit(time_ns=800), RetentionLimit(size=80 << 20)

    assert [by_time.is_full(0, age) for age in (99, 100)] == [False, True]
    assert [by_size.is_full(size, 0) for size in ((10 << 20) - 1, 10 << 20)] == [False, True]
    assert [RetentionLimit(size=1).is_full(size, 0) for size in ((1 << 20) - 1, 1 << 20)] == [False, True]
