"""A topic of another nsqd's log."""

import pytest

from nsqd.engine import notes
from nsqd.engine.replica_topic import ReplicaTopic
from nsqd.engine.settings import Settings
from nsqd.log.ids import MessageIds
from tests.support.engine import NoDisk


@pytest.fixture
def topic():
    return ReplicaTopic("t", "origin", MessageIds(3), NoDisk())


def test_channels_have_origins_ids(topic):
    assert topic.add_channel("c").ids is topic.ids


def test_change_is_not_noted_but_marks_topic_as_changed(topic):
    channel = topic.add_channel("c")
    topic.take_changed()
    topic.note(notes.PAUSE, "c")
    topic.note_requeued(channel, 1, 2)

    assert topic.staged_notes() == []
    assert topic.take_changed()


def test_new_channel_withholds_what_topic_withholds(topic):
    topic.backlog.extend(0, 10)
    topic.log.next_seq = 10
    topic.suspended = [(4, 10)]

    channel = topic.add_channel("c")

    assert channel.backlog.pending.ranges() == [(0, 4)]
    assert channel.backlog.unfinished(0, 10) == [(0, 10)]


def test_no_message_ids_are_remembered():
    def settings_of(_topic, _channel):
        return Settings(dedup_window_ns=10**9)

    assert ReplicaTopic("t", "origin", MessageIds(3), NoDisk(), None, settings_of).published is None
