"""Restarts without processes: a broker and its data path are dropped and opened again."""

import shutil

import pytest

from nsqd.storage.metadata import Metadata, TopicMetadata
from nsqd.storage.reservation import STRIDE
from nsqd.storage.topic_log import store_of
from tests.support.engine import SECOND
from tests.support.machine import Machine


def save(machine):
    """Write a checkpoint of each topic."""
    for topic in machine.broker.topics.values():
        machine.checkpoint(topic)


def publish_later(machine, body, seconds):
    topic = machine.topic()
    topic.stage(body, machine.now_ns, machine.now_ns + seconds * SECOND)
    machine.broker.dirty[topic] = None
    machine.turn()


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path, segment=1000)
    yield machine
    machine.close()


def test_messages_without_channel_wait_for_the_first_one_after_crash(machine):
    machine.publish(*[b"%d" % n for n in range(10)])

    machine.crash()

    assert machine.consume(20)[1] == [(1, b"%d" % n) for n in range(10)]


def test_starts_continue_above_used_numbers(machine):
    machine.publish(b"1")
    for _ in range(3):
        end = machine.broker.topics["t"].log.next_seq
        machine.crash(seconds=-3600)  # the clock was set back

        assert machine.broker.topics["t"].log.next_seq >= end
        machine.publish(b"2")
    assert machine.consume(10)[1] == [(1, b"1"), (1, b"2"), (1, b"2"), (1, b"2")]


def test_topic_that_is_made_again_has_other_numbers(machine):
    machine.publish(*[b"x"] * 10)
    topic = machine.broker.topics["t"]
    # As after more than a million messages a second: the sequence is ahead of the clock.
    topic.skip_to(topic.log.next_seq + 10**9)
    end = topic.log.next_seq
    machine.data.delete(topic)
    machine.broker.delete_topic("t")

    machine.publish(b"new")

    assert machine.broker.topics["t"].log.next_seq > end


def test_copied_data_path_goes_on_with_numbers_of_its_own(machine, tmp_path_factory):
    machine.publish(b"1")
    copy = tmp_path_factory.mktemp("copy") / "data"
    shutil.copytree(machine.path, copy)

    other = Machine(copy)

    ahead = other.broker.topics["t"].log.next_seq - machine.broker.topics["t"].log.next_seq
    assert ahead > 1000 * STRIDE
    assert "is a copy of another data path" in other.warnings[0]
    assert other.consume(1)[1] == [(1, b"1")]
    other.close()


LISTED = [TopicMetadata("t", False, [("a", False), ("b", True), ("c", False)])]


def listed_by(machine, topics=LISTED):
    """The metadata of this data path."""
    return Metadata(topics, machine.data.reservation.identity.hex())


def damage_checkpoints(machine):
    for path in (machine.path / "t.topic").glob("checkpoint.?"):
        path.write_bytes(path.read_bytes()[:-3])


def test_channels_without_checkpoint_get_all_messages(machine):
    for name in "abc":
        machine.channel(name)
    topic = machine.broker.topics["t"]
    machine.broker.pause_channel(topic, topic.channels["b"], paused=True)
    machine.turn()
    machine.publish(*[b"x"] * 100)
    save(machine)
    save(machine)
    damage_checkpoints(machine)

    machine.crash(metadata=listed_by(machine))

    found = machine.broker.topics["t"].channels
    assert {name: (c.backlog.pending.count, c.paused) for name, c in found.items()} == {
        "a": (100, False),
        "b": (100, True),
        "c": (100, False),
    }


def test_channels_come_from_nsqd_dat_without_checkpoint_and_log_start(machine):
    for name in "abc":
        machine.channel(name)
    for _ in range(5):
        machine.publish(*[b"x" * 100] * 10)
    save(machine)
    save(machine)
    damage_checkpoints(machine)
    ((machine.path / "t.topic") / "00000001.log").unlink()

    machine.crash(metadata=listed_by(machine))

    found = machine.broker.topics["t"].channels
    assert {name: c.backlog.pending.count for name, c in found.items()} == {"a": 40, "b": 40, "c": 40}
    assert found["b"].paused


@pytest.mark.parametrize("made_again", [False, True])
def test_topic_without_its_log_start_has_no_channels_of_former_topic(machine, made_again):
    machine.channel("a")
    machine.publish(b"1")
    log_id = store_of(machine.broker.topics["t"]).appender.log_id
    listed = [TopicMetadata("t", True, [("a", False), ("b", True)], log_id)]
    if made_again:
        machine.data.delete(machine.broker.topics["t"])
        machine.broker.delete_topic("t")
        machine.publish(b"1")
    for _ in range(2):
        machine.publish(*[b"x" * 100] * 10)
    ((machine.path / "t.topic") / "00000001.log").unlink()

    machine.crash(metadata=listed_by(machine, listed))

    topic = machine.broker.topics["t"]
    assert (sorted(topic.channels), topic.paused) == (([], False) if made_again else (["a", "b"], True))
    assert topic.backlog.pending.count == 10


def test_deleted_topic_does_not_return_from_old_metadata(machine):
    machine.publish(b"1")
    machine.data.delete(machine.broker.topics["t"])
    machine.broker.delete_topic("t")

    machine.crash(metadata=listed_by(machine))

    assert machine.broker.topics == {}


def test_channels_of_deleted_topic_are_not_those_of_the_one_made_again(machine):
    machine.channel("a")
    machine.data.delete(machine.broker.topics["t"])
    machine.broker.delete_topic("t")
    machine.publish(b"1")

    machine.crash(metadata=listed_by(machine))

    topic = machine.broker.topics["t"]
    assert (dict(topic.channels), topic.backlog.pending.count) == ({}, 1)


def test_topic_deleted_and_made_again_in_one_moment_reads_its_own_log(machine):
    machine.publish(b"old")
    machine.data.delete(machine.broker.topics["t"])
    machine.broker.delete_topic("t")
    machine.channel()
    machine.publish(*[b"x" * 100] * 40)
    machine.data.deleted += machine.data.deleted_unsynced
    machine.data.remove_deleted()

    _, found = machine.consume(100)

    assert found == [(1, b"x" * 100)] * 40
    assert machine.broker.topics["t"].channels["c"].lost_count == 0
    assert sorted(path.name for path in machine.path.iterdir()) == ["reservation", "spare", "t.topic"]


def test_time_set_on_wall_moves_no_deadline(machine):
    channel = machine.channel()
    publish_later(machine, b"later", 30)
    machine.broker.wall.offset_ns = 3600 * SECOND  # the clock is set an hour ahead
    machine.publish(b"now")

    consumer, found = machine.consume(10)
    machine.broker.remove_consumer(consumer)
    assert found == [(1, b"now")]
    machine.now_ns += 31 * SECOND
    assert (1, b"later") in machine.consume(10)[1]
    assert channel.log.read(channel.log.next_seq - 1).timestamp_ns(channel.log.next_seq - 1) > machine.now_ns


def test_metadata_adds_what_has_no_folder_and_leaves_out_bad_names(machine):
    machine.publish(b"1")
    listed = [
        TopicMetadata("t", True, [("new", True), ("bad$", False)]),
        TopicMetadata("bad$"),
        TopicMetadata("u", True),
    ]

    machine.crash(metadata=Metadata(listed))

    topics = machine.broker.topics
    assert sorted(topics) == ["t", "u"]
    assert (topics["t"].paused, topics["u"].paused) == (False, True)
    assert [(c.name, c.paused) for c in topics["t"].channels.values()] == [("new", True)]
    # From now on the folders have this state.
    machine.crash()
    assert (machine.broker.topics["u"].paused, machine.broker.topics["t"].channels["new"].paused) == (
        True,
        True,
    )
    assert machine.warnings == [
        "skipping creation of invalid channel bad$",
        "skipping creation of invalid topic bad$",
    ]


def test_paused_topic_keeps_later_messages_to_itself(machine):
    channel = machine.channel()
    machine.publish(b"1")
    machine.broker.pause_topic(machine.broker.topics["t"], paused=True)
    save(machine)
    machine.publish(b"2")

    machine.crash()

    topic = machine.broker.topics["t"]
    assert (topic.paused, topic.backlog.pending.count, topic.channels["c"].backlog.pending.count) == (
        True,
        1,
        1,
    )
    assert channel is not topic.channels["c"]


def test_half_removed_topic_does_not_come_back(machine):
    machine.publish(b"1")
    machine.close()
    (machine.path / "t.topic").rename(machine.path / "t.topic.0123.deleted")

    machine.crash()
    machine.data.remove_deleted()

    assert machine.broker.topics == {}
    assert sorted(path.name for path in machine.path.iterdir()) == ["reservation", "spare"]


def test_deleted_topics_stay_deleted_in_copied_data_path(machine, tmp_path_factory):
    machine.channel("kept")
    machine.publish(b"1")
    copy = tmp_path_factory.mktemp("copy") / "data"
    shutil.copytree(machine.path, copy)
    listed = [TopicMetadata("t", channels=[("kept", False), ("deleted", False)]), TopicMetadata("deleted")]

    other = Machine(copy, metadata=listed_by(machine, listed))

    assert {name: list(topic.channels) for name, topic in other.broker.topics.items()} == {"t": ["kept"]}
    other.close()


def test_topics_of_another_data_path_are_taken_over_from_its_metadata(machine):
    listed = [TopicMetadata("other", channels=[("c", False)])]

    machine.crash(metadata=Metadata(listed, "00" * 16))

    assert list(machine.broker.topics["other"].channels) == ["c"]
