"""A topic of another nsqd that is served here."""

import pytest

from nsqd.engine import notes
from nsqd.engine.carried_topic import CarriedTopic
from nsqd.engine.settings import Settings
from nsqd.log.ids import MessageIds
from nsqd.log.tail import NoSource


@pytest.fixture
def topic():
    return CarriedTopic("t", "home", MessageIds(3), NoSource())


def test_its_channels_know_whose_messages_they_have(topic):
    assert topic.add_channel("c").ids is topic.ids


def test_nothing_is_noted_and_the_next_checkpoint_has_it(topic):
    channel = topic.add_channel("c")
    topic.take_changed()
    topic.note(notes.PAUSE, "c")
    topic.note_put_off(channel, 1, 2)

    assert topic.staged_notes() == []
    assert topic.take_changed()


def test_what_it_withholds_a_channel_that_is_made_withholds(topic):
    topic.backlog.extend(0, 10)
    topic.log.next_seq = 10
    topic.withheld = [(4, 10)]

    channel = topic.add_channel("c")

    assert channel.waiting() == [(0, 4)]
    assert channel.owed(0, 10) == [(0, 10)]


def test_no_ids_of_messages_are_remembered_for_it():
    def settings_of(_topic, _channel):
        return Settings(dedup_window_ns=10**9)

    assert CarriedTopic("t", "home", MessageIds(3), NoSource(), None, settings_of).published is None
