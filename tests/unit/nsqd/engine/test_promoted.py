"""Delivery of promoted copies next to the own topics, and channel state of other copies."""

import pytest

from nsqd.engine import finished_ranges, promoted, replay
from nsqd.engine.broker import Change
from nsqd.engine.finished_ranges import FinishedRanges
from nsqd.engine.numbering import draw_generation
from nsqd.engine.settings import Settings
from tests.support.engine import SECOND, Node, bodies
from tests.support.promoted import Owner, copy_of, lose_all_but, suspend_only


@pytest.fixture
def origin():
    node = Node()
    node.channel()
    node.publish(*[b"%d" % number for number in range(10)])
    return node


@pytest.fixture
def first(origin):
    return origin.topic().log.next_seq - 10


@pytest.fixture
def owner():
    return Owner()


@pytest.fixture
def copy(origin, owner):
    """The origin's topic, promoted by the owner."""
    return owner.promote(origin.topic())


def generation(count=1):
    return draw_generation(99, "t", "x", 1, count)


def say(node, consumer, line):
    session, _ = node.session()
    session.receive(b"  V2", node.now_ns)
    session.consumer, session.state = consumer, 3
    session.receive(line, node.now_ns)
    node.turn()
    return session.take_replies()


# --- attached


def test_consumers_get_promoted_copys_messages_with_origins_ids(origin, owner):
    owner.channel()
    owner.promote(origin.topic())
    _, outlet = owner.subscribe(owner.channel(), rdy=100)

    assert [(message_id, body) for message_id, _, body in outlet.taken()] == [
        (origin.broker.ids.encode(origin.topic().log.next_seq - 10 + number), b"%d" % number)
        for number in range(10)
    ]


def test_attach_makes_missing_topic_and_channels(owner, copy):
    assert list(owner.broker.topics["t"].channels) == ["c"]
    changes = [event.change for event in owner.broker.events]
    assert changes == [Change.TOPIC_CREATED, Change.CHANNEL_CREATED]


def test_channel_unknown_to_copy_gets_none_of_its_messages(origin, owner):
    other = owner.channel("other")
    owner.promote(origin.topic())
    _, outlet = owner.subscribe(other, rdy=100)

    assert bodies(outlet) == []


def test_messages_without_channel_go_to_all_existing_channels(owner):
    origin = Node()
    origin.publish(b"early")
    channels = [owner.channel(name) for name in ("a", "b")]
    copy = owner.promote(origin.topic())

    for channel in channels:
        _, outlet = owner.subscribe(channel, rdy=100)
        assert bodies(outlet) == [b"early"]
    assert copy.backlog.pending.count == 0


def test_messages_without_channel_go_to_the_first_new_channel(owner):
    origin = Node()
    origin.publish(b"early")
    copy = owner.promote(origin.topic())
    assert copy.backlog.pending.count == 1

    _, outlet = owner.subscribe(owner.channel("a"), rdy=100)
    _, late = owner.subscribe(owner.channel("b"), rdy=100)

    assert bodies(outlet) == [b"early"]
    assert bodies(late) == []


def test_deferred_messages_of_origin_are_delivered_when_due(owner):
    origin = Node()
    origin.channel()
    origin.topic().stage(b"later", origin.now_ns, origin.now_ns + 20 * SECOND)
    origin.broker.dirty[origin.topic()] = None
    origin.turn()
    owner.promote(origin.topic())
    _, outlet = owner.subscribe(owner.channel(), rdy=100)
    assert bodies(outlet) == []

    owner.advance(21)

    assert bodies(outlet) == [b"later"]


# --- answered


@pytest.mark.parametrize("together", [True, False], ids=["in one packet", "one by one"])
def test_fin_reaches_log_of_message(origin, owner, first, together):
    channel = owner.channel()
    owner.publish(b"a", b"b", b"c")
    copy = owner.promote(origin.topic())
    consumer, outlet = owner.subscribe(channel, rdy=100)
    lines = [b"FIN " + message_id + b"\n" for message_id, _, _ in outlet.taken()]
    assert len(lines) == 13

    for line in [b"".join(lines[::2] + lines[1::2])] if together else lines:
        assert say(owner, consumer, line) == b""

    assert finished_ranges.facts(copy, "c").finished == [(first, first + 10)]
    assert channel.backlog.lowest() is None
    assert (consumer.in_flight, consumer.finish_count) == (0, 13)


def test_fin_of_message_not_in_flight_is_refused(origin, owner, first, copy):
    consumer, _ = owner.subscribe(owner.channel(), rdy=1)

    reply = say(owner, consumer, b"FIN " + origin.broker.ids.encode(first + 5) + b"\n")

    assert b"E_FIN_FAILED" in reply


def test_requeued_message_comes_again_with_its_attempts(owner, first, copy):
    consumer, outlet = owner.subscribe(owner.channel(), rdy=1)
    (message_id, _, _) = outlet.taken()[0]

    say(owner, consumer, b"REQ " + message_id + b" 0\n")
    owner.ready(consumer, 100)

    assert (message_id, 2) in [(one, attempts) for one, attempts, _ in outlet.taken()]


def test_deferred_requeue_comes_when_due(owner, copy):
    consumer, outlet = owner.subscribe(owner.channel(), rdy=10)
    (message_id, _, _) = outlet.taken()[0]

    say(owner, consumer, b"REQ " + message_id + b" 5000\n")
    owner.turn()
    assert bodies(outlet) == []

    owner.advance(6)
    assert [one for one, _, _ in outlet.taken()] == [message_id]


def test_touched_message_does_not_time_out(owner, copy):
    consumer, outlet = owner.subscribe(owner.channel(), rdy=2, msg_timeout=10)
    touched, left = (message_id for message_id, _, _ in outlet.taken())
    owner.advance(6)
    say(owner, consumer, b"TOUCH " + touched + b"\n")
    consumer.rdy = 0

    owner.advance(6)
    owner.ready(consumer, 100)

    assert left in [one for one, _, _ in outlet.taken()]
    assert say(owner, consumer, b"FIN " + touched + b"\n") == b""


def test_leaving_consumer_returns_messages_of_all_logs(origin, owner):
    channel = owner.channel()
    owner.publish(b"ours")
    copy = owner.promote(origin.topic())
    consumer, _ = owner.subscribe(channel, rdy=100)

    owner.broker.remove_consumer(consumer)

    assert (channel.backlog.pending.count, copy.channels["c"].backlog.pending.count) == (1, 10)
    assert promoted.in_flight(copy) == {}
    _, outlet = owner.subscribe(channel, rdy=100)
    assert len(bodies(outlet)) == 11


def test_rdy_limits_all_logs_together(origin, owner):
    channel = owner.channel()
    owner.publish(*[b"ours"] * 10)
    owner.promote(origin.topic())

    consumer, outlet = owner.subscribe(channel, rdy=6)

    assert (len(bodies(outlet)), consumer.in_flight) == (6, 6)


# --- administered


def test_paused_channel_delivers_from_no_log(origin, owner):
    channel = owner.channel()
    copy = owner.promote(origin.topic())
    owner.broker.pause_channel(owner.topic(), channel, paused=True)
    _, outlet = owner.subscribe(channel, rdy=100)
    assert bodies(outlet) == []
    assert copy.channels["c"].paused

    owner.broker.pause_channel(owner.topic(), channel, paused=False)
    owner.turn()

    assert len(bodies(outlet)) == 10


def test_channel_paused_at_origin_stays_paused_until_unpaused_here(origin, owner):
    origin.broker.pause_channel(origin.topic(), origin.channel(), paused=True)
    owner.promote(origin.topic())
    _, outlet = owner.subscribe(owner.channel(), rdy=100)
    assert bodies(outlet) == []

    owner.broker.pause_channel(owner.topic(), owner.channel(), paused=False)
    owner.turn()

    assert len(bodies(outlet)) == 10


def test_unpausing_topic_unpauses_its_promoted_copies(owner):
    origin = Node()
    origin.channel()
    origin.broker.pause_topic(origin.topic(), paused=True)
    origin.publish(b"held back")
    owner.promote(origin.topic())
    _, outlet = owner.subscribe(owner.channel(), rdy=100)
    assert bodies(outlet) == []

    owner.broker.pause_topic(owner.topic(), paused=False)
    owner.turn()

    assert bodies(outlet) == [b"held back"]


def test_emptying_channel_finishes_messages_of_promoted_copies(origin, owner, first):
    channel = owner.channel()
    owner.publish(b"ours")
    copy = owner.promote(origin.topic())
    consumer, _ = owner.subscribe(channel, rdy=5)

    owner.broker.empty_channel(owner.topic(), channel)

    assert finished_ranges.facts(copy, "c").finished == [(first, first + 10)]
    assert consumer.in_flight == 0


def test_emptying_topic_finishes_messages_of_promoted_copies(owner):
    origin = Node()
    origin.publish(b"early")
    copy = owner.promote(origin.topic())

    owner.broker.empty_topic(owner.topic())

    assert copy.backlog.lowest() is None


def test_deleted_channel_is_finished_for_other_copies_and_not_made_again(origin, owner, first, copy):
    consumer, _ = owner.subscribe(owner.channel(), rdy=5)
    orphans = owner.broker.delete_channel(owner.topic(), "c")

    assert orphans == [consumer]
    assert consumer.in_flight == 0
    told = finished_ranges.facts(copy, "c")
    assert told.finished == [(first, first + 10)]
    assert promoted.merge(origin.broker, origin.topic(), "c", told, stored=list) == 10
    assert promoted.merge(owner.broker, copy, "c", told, stored=list) == 0
    assert "c" not in copy.channels


def test_seek_forward_finishes_earlier_messages_of_all_logs(owner, first, copy):
    promoted.pass_over(owner.broker, owner.topic(), "c", lambda topic: topic.log.next_seq - 2)
    _, outlet = owner.subscribe(owner.channel(), rdy=100)

    assert bodies(outlet) == [b"8", b"9"]
    assert finished_ranges.facts(copy, "c").finished == [(first, first + 8)]


def test_seek_back_keeps_finished_messages_of_copy_finished(owner, first, copy):
    copy.channels["c"].commit(first + 8)
    promoted.pass_over(owner.broker, owner.topic(), "c", lambda _: first)

    assert finished_ranges.facts(copy, "c").finished == [(first, first + 8)]


def test_deleting_topic_deletes_channels_of_promoted_copies(owner, copy):
    owner.broker.delete_topic("t")

    assert copy.tombstoned
    assert copy.take_changed()
    assert not copy.channels


def test_log_of_copy_gets_no_note(origin, owner):
    channel = owner.channel()
    copy = owner.promote(origin.topic())
    copy.take_changed()
    owner.broker.pause_channel(owner.topic(), channel, paused=True)
    owner.broker.empty_channel(owner.topic(), channel)

    assert copy.staged_notes() == []
    assert copy.take_changed()


def test_policies_of_own_channel_apply_to_copy(origin, owner):
    def settings_of(_topic, _channel):
        return Settings(max_attempts=1, dead_letter_topic="dead", dedup_window_ns=SECOND)

    copy = owner.promote(origin.topic())
    owner.broker.apply(settings_of)
    assert copy.published is None
    consumer, outlet = owner.subscribe(owner.channel(), rdy=1)
    (message_id, _, _) = outlet.taken()[0]

    say(owner, consumer, b"REQ " + message_id + b" 0\n")

    assert copy.channels["c"].backlog.dead_letter_queue.count == 1


def test_unreadable_messages_of_copy_are_not_counted_as_lost(origin, owner, first):
    lose_all_but(origin.topic(), first + 5)
    copy = owner.promote(origin.topic())
    _, outlet = owner.subscribe(owner.channel(), rdy=100)

    assert len(bodies(outlet)) == 5
    assert copy.channels["c"].lost_count == 0
    assert finished_ranges.stored_ranges(copy) == [(first + 5, first + 10)]


# --- counted


def test_counts_of_copy_move_to_own_channel_and_stay(owner, copy):
    channel = owner.channel()
    consumer, outlet = owner.subscribe(channel, rdy=4, msg_timeout=5)
    (first, _, _), *_ = outlet.taken()
    consumer.rdy = 0
    say(owner, consumer, b"REQ " + first + b" 0\n")
    channel.changed = False
    promoted.gather_counts(channel)
    assert (channel.requeue_count, channel.delivered_count, channel.changed) == (1, 4, True)

    owner.advance(10)
    promoted.detach(owner.broker, copy)
    promoted.gather_counts(channel)

    assert (channel.requeue_count, channel.timeout_count, channel.delivered_count) == (1, 3, 4)


def test_counts_of_origin_are_not_counted_again(origin, owner):
    origin.channel().requeue_count = 7
    copy = owner.promote(origin.topic())
    promoted.gather_counts(owner.channel())

    assert owner.channel().requeue_count == 0
    assert promoted.detach(owner.broker, copy)
    assert owner.channel().requeue_count == 0


# --- withheld


def test_withheld_messages_are_not_delivered(origin, owner, first):
    copy = owner.promote(origin.topic(), [(0, first + 2), (first + 5, first + 10)])
    _, outlet = owner.subscribe(owner.channel(), rdy=100)

    assert bodies(outlet) == [b"2", b"3", b"4"]
    assert copy.channels["c"].backlog.pending.count == 0
    assert finished_ranges.facts(copy, "c").finished == []

    suspend_only(owner, copy, [])
    assert len(bodies(outlet)) == 7


def test_withheld_messages_without_channel_go_to_no_channel(owner):
    origin = Node()
    origin.publish(b"0", b"1")
    first = origin.topic().log.next_seq - 2
    copy = owner.promote(origin.topic(), [(first + 1, first + 2)])
    _, outlet = owner.subscribe(owner.channel("a"), rdy=100)
    assert bodies(outlet) == [b"0"]

    suspend_only(owner, copy, [])

    assert bodies(outlet) == [b"1"]


def test_detach_leaves_consumers_and_own_messages(origin, owner):
    channel = owner.channel()
    copy = owner.promote(origin.topic())
    consumer, outlet = owner.subscribe(channel, rdy=100)
    sibling = copy.channels["c"]

    assert promoted.detach(owner.broker, copy, force=True)

    assert (consumer.in_flight, channel.siblings, owner.topic().promoted) == (0, [], [])
    owner.advance(1000)
    outlet.taken()
    owner.publish(b"ours")
    assert bodies(outlet) == [b"ours"]
    assert sibling.deleted


# --- channel state of other copies


def test_learn_finishes_messages_of_own_topic_for_the_next_checkpoint(origin, owner, first, copy):
    consumer, outlet = owner.subscribe(owner.channel(), rdy=4)
    say(owner, consumer, b"".join(b"FIN " + message_id + b"\n" for message_id, _, _ in outlet.taken()))
    told = finished_ranges.facts(copy, "c")
    origin.topic().changed = False

    learned = promoted.merge(origin.broker, origin.topic(), "c", told, stored=list)

    assert learned == 4
    assert origin.channel().backlog.lowest() == first + 4
    assert origin.topic().changed


def test_channel_state_of_another_generation_is_ignored(origin, first):
    told = FinishedRanges(generation(), [(first, first + 10)])

    assert promoted.merge(origin.broker, origin.topic(), "c", told, stored=list) == 0
    assert origin.channel().backlog.pending.count == 10


def test_unknown_channel_is_made_with_pending_messages(origin, first):
    told = FinishedRanges(generation(), [(first, first + 7)])
    stored = [(first, first + 10)]
    copy = copy_of(origin.topic(), origin)

    promoted.merge(origin.broker, origin.topic(), "n", told, stored=lambda: stored)
    noted = list(origin.topic().staged_notes())
    origin.turn()

    made = origin.topic().channels["n"]
    assert made.generation == told.generation
    assert made.backlog.pending.ranges() == [(first + 7, first + 10)]
    for note in noted:
        replay.apply(copy, note)
    assert copy.channels["n"].generation == told.generation
    assert copy.channels["n"].backlog.pending.ranges() == [(first + 7, first + 10)]


def test_channel_that_is_made_later_withholds_what_copy_withholds(origin):
    copy = copy_of(origin.topic(), Owner())
    copy.backlog.extend(copy.log.next_seq, copy.log.next_seq + 10)
    copy.log.next_seq += 10
    copy.suspended = [(copy.log.next_seq - 6, copy.log.next_seq)]

    channel = copy.add_channel("later")

    assert channel.ids is copy.ids
    assert [end - start for start, end in channel.backlog.pending.ranges()] == [4]
