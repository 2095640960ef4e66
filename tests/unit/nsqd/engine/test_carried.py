"""Serving the logs of other nsqd beside one's own."""

import pytest

from nsqd.engine import carried, facts, notes, replay
from nsqd.engine.broker import Change
from nsqd.engine.facts import ChannelFacts
from nsqd.engine.generations import draw
from nsqd.engine.settings import Settings
from tests.support.carrying import Carrier, copy_of, lose_all_but
from tests.support.engine import SECOND, Node


@pytest.fixture
def home():
    node = Node()
    node.channel()
    node.publish(*[b"%d" % number for number in range(10)])
    return node


@pytest.fixture
def first(home):
    return home.topic().log.next_seq - 10


@pytest.fixture
def carrier():
    return Carrier()


def bodies(outlet):
    return [body for _, _, body in outlet.taken()]


def generation(count=1):
    return draw(99, "t", "x", 1, count)


def say(node, consumer, line):
    session, _ = node.session()
    session.receive(b"  V2", node.now_ns)
    session.consumer, session.state = consumer, 3
    session.receive(line, node.now_ns)
    node.turn()
    return session.take_replies()


# --- attached


def test_what_is_carried_is_given_to_the_consumers_of_the_topic_with_its_own_ids(home, carrier):
    carrier.channel()
    carrier.carry(home.topic())
    _, outlet = carrier.subscribe(carrier.channel(), rdy=100)

    assert [(message_id, body) for message_id, _, body in outlet.taken()] == [
        (home.broker.ids.encode(home.topic().log.next_seq - 10 + number), b"%d" % number)
        for number in range(10)
    ]


def test_the_topic_and_its_channels_are_made_where_they_are_not_there(home, carrier):
    carrier.carry(home.topic())

    assert list(carrier.broker.topics["t"].channels) == ["c"]
    changes = [event.change for event in carrier.broker.events]
    assert changes == [Change.TOPIC_CREATED, Change.CHANNEL_CREATED]


def test_consumers_that_were_ready_before_are_served(home, carrier):
    _, outlet = carrier.subscribe(carrier.channel(), rdy=100)
    carrier.carry(home.topic())

    assert len(bodies(outlet)) == 10


def test_a_channel_that_was_never_owed_it_is_given_nothing_of_it(home, carrier):
    other = carrier.channel("other")
    carrier.carry(home.topic())
    _, outlet = carrier.subscribe(other, rdy=100)

    assert bodies(outlet) == []


def test_what_waited_at_a_topic_without_channels_goes_to_all_that_are_there(carrier):
    home = Node()
    home.publish(b"early")
    channels = [carrier.channel(name) for name in ("a", "b")]
    copy = carrier.carry(home.topic())

    for channel in channels:
        _, outlet = carrier.subscribe(channel, rdy=100)
        assert bodies(outlet) == [b"early"]
    assert copy.backlog.depth == 0


def test_what_waited_at_a_topic_without_channels_goes_to_the_first_that_is_made(carrier):
    home = Node()
    home.publish(b"early")
    copy = carrier.carry(home.topic())
    assert copy.backlog.depth == 1

    _, outlet = carrier.subscribe(carrier.channel("a"), rdy=100)
    _, late = carrier.subscribe(carrier.channel("b"), rdy=100)

    assert bodies(outlet) == [b"early"]
    assert bodies(late) == []


def test_what_was_deferred_at_home_is_given_when_it_is_due(carrier):
    home = Node()
    home.channel()
    home.topic().stage(b"later", home.now_ns, home.now_ns + 20 * SECOND)
    home.broker.dirty[home.topic()] = None
    home.turn()
    carrier.carry(home.topic())
    _, outlet = carrier.subscribe(carrier.channel(), rdy=100)
    assert bodies(outlet) == []

    carrier.advance(21)

    assert bodies(outlet) == [b"later"]


# --- answered


@pytest.mark.parametrize("together", [True, False], ids=["in one packet", "one by one"])
def test_answers_reach_the_log_they_belong_to(home, carrier, first, together):
    channel = carrier.channel()
    carrier.publish(b"a", b"b", b"c")
    copy = carrier.carry(home.topic())
    consumer, outlet = carrier.subscribe(channel, rdy=100)
    lines = [b"FIN " + message_id + b"\n" for message_id, _, _ in outlet.taken()]
    assert len(lines) == 13

    for line in [b"".join(lines[::2] + lines[1::2])] if together else lines:
        assert say(carrier, consumer, line) == b""

    assert facts.facts(copy, "c").finished == [(first, first + 10)]
    assert channel.lowest() is None
    assert (consumer.in_flight, consumer.finish_count) == (0, 13)


def test_an_answer_to_what_is_not_in_flight_is_refused(home, carrier, first):
    carrier.carry(home.topic())
    consumer, _ = carrier.subscribe(carrier.channel(), rdy=1)

    reply = say(carrier, consumer, b"FIN " + home.broker.ids.encode(first + 5) + b"\n")

    assert b"E_FIN_FAILED" in reply


def test_a_message_that_is_requeued_comes_again_with_its_attempts(home, carrier, first):
    carrier.carry(home.topic())
    consumer, outlet = carrier.subscribe(carrier.channel(), rdy=1)
    (message_id, _, _) = outlet.taken()[0]

    say(carrier, consumer, b"REQ " + message_id + b" 0\n")
    carrier.ready(consumer, 100)

    assert (message_id, 2) in [(one, attempts) for one, attempts, _ in outlet.taken()]


def test_a_message_that_is_put_off_comes_when_it_is_due(home, carrier):
    carrier.carry(home.topic())
    consumer, outlet = carrier.subscribe(carrier.channel(), rdy=10)
    (message_id, _, _) = outlet.taken()[0]

    say(carrier, consumer, b"REQ " + message_id + b" 5000\n")
    carrier.turn()
    assert bodies(outlet) == []

    carrier.advance(6)
    assert [one for one, _, _ in outlet.taken()] == [message_id]


def test_a_touched_message_does_not_time_out(home, carrier):
    carrier.carry(home.topic())
    consumer, outlet = carrier.subscribe(carrier.channel(), rdy=2, msg_timeout=10)
    touched, left = (message_id for message_id, _, _ in outlet.taken())
    carrier.advance(6)
    say(carrier, consumer, b"TOUCH " + touched + b"\n")
    consumer.rdy = 0

    carrier.advance(6)
    carrier.ready(consumer, 100)

    assert left in [one for one, _, _ in outlet.taken()]
    assert say(carrier, consumer, b"FIN " + touched + b"\n") == b""


def test_a_consumer_that_leaves_gives_back_what_it_has_of_all_logs(home, carrier):
    channel = carrier.channel()
    carrier.publish(b"ours")
    copy = carrier.carry(home.topic())
    consumer, _ = carrier.subscribe(channel, rdy=100)

    carrier.broker.leave(consumer)

    assert (channel.depth, copy.channels["c"].depth) == (1, 10)
    assert carried.in_flight(copy) == {}
    _, outlet = carrier.subscribe(channel, rdy=100)
    assert len(bodies(outlet)) == 11


def test_rdy_is_one_for_all_logs(home, carrier):
    channel = carrier.channel()
    carrier.publish(*[b"ours"] * 10)
    carrier.carry(home.topic())

    consumer, outlet = carrier.subscribe(channel, rdy=6)

    assert (len(bodies(outlet)), consumer.in_flight) == (6, 6)


# --- administered


def test_a_paused_channel_gives_nothing_of_any_log(home, carrier):
    channel = carrier.channel()
    copy = carrier.carry(home.topic())
    carrier.broker.pause_channel(carrier.topic(), channel, paused=True)
    _, outlet = carrier.subscribe(channel, rdy=100)
    assert bodies(outlet) == []
    assert copy.channels["c"].paused

    carrier.broker.pause_channel(carrier.topic(), channel, paused=False)
    carrier.turn()

    assert len(bodies(outlet)) == 10


def test_a_channel_that_was_paused_at_home_is_paused_until_it_is_unpaused_here(home, carrier):
    home.broker.pause_channel(home.topic(), home.channel(), paused=True)
    carrier.carry(home.topic())
    _, outlet = carrier.subscribe(carrier.channel(), rdy=100)
    assert bodies(outlet) == []

    carrier.broker.pause_channel(carrier.topic(), carrier.channel(), paused=False)
    carrier.turn()

    assert len(bodies(outlet)) == 10


def test_a_topic_is_unpaused_with_what_is_carried(carrier):
    home = Node()
    home.channel()
    home.broker.pause_topic(home.topic(), paused=True)
    home.publish(b"held back")
    carrier.carry(home.topic())
    _, outlet = carrier.subscribe(carrier.channel(), rdy=100)
    assert bodies(outlet) == []

    carrier.broker.pause_topic(carrier.topic(), paused=False)
    carrier.turn()

    assert bodies(outlet) == [b"held back"]


def test_an_emptied_channel_has_finished_what_is_carried_too(home, carrier, first):
    channel = carrier.channel()
    carrier.publish(b"ours")
    copy = carrier.carry(home.topic())
    consumer, _ = carrier.subscribe(channel, rdy=5)

    carrier.broker.empty_channel(carrier.topic(), channel)

    assert facts.facts(copy, "c").finished == [(first, first + 10)]
    assert consumer.in_flight == 0


def test_an_emptied_topic_has_finished_what_waited_at_the_carried_one(carrier):
    home = Node()
    home.publish(b"early")
    copy = carrier.carry(home.topic())

    carrier.broker.empty_topic(carrier.topic())

    assert copy.backlog.lowest() is None


def test_a_deleted_channel_is_told_as_finished_and_not_made_again(home, carrier, first):
    copy = carrier.carry(home.topic())
    consumer, _ = carrier.subscribe(carrier.channel(), rdy=5)
    orphans = carrier.broker.delete_channel(carrier.topic(), "c")

    assert orphans == [consumer]
    assert consumer.in_flight == 0
    told = facts.facts(copy, "c")
    assert told.finished == [(first, first + 10)]
    assert carried.learn(home.broker, home.topic(), "c", told, higher=False, stored=list) == 10
    assert carried.learn(carrier.broker, copy, "c", told, higher=True, stored=list) == 0
    assert "c" not in copy.channels


def test_a_channel_that_is_set_to_a_later_place_is_done_with_what_lies_before_in_all_logs(
    home, carrier, first
):
    copy = carrier.carry(home.topic())
    carried.pass_over(carrier.broker, carrier.topic(), "c", lambda topic: topic.log.next_seq - 2)
    _, outlet = carrier.subscribe(carrier.channel(), rdy=100)

    assert bodies(outlet) == [b"8", b"9"]
    assert facts.facts(copy, "c").finished == [(first, first + 8)]


def test_a_channel_that_is_set_back_leaves_to_the_home_what_the_home_has_finished(home, carrier, first):
    copy = carrier.carry(home.topic())
    copy.channels["c"].commit(first + 8)
    carried.pass_over(carrier.broker, carrier.topic(), "c", lambda _: first)

    assert facts.facts(copy, "c").finished == [(first, first + 8)]


def test_of_deleted_channels_those_are_told_that_the_home_knows(carrier, first):
    home = Node()
    home.publish(b"early")
    copy = carrier.carry(home.topic())
    carrier.channel("made here")
    carrier.broker.delete_channel(carrier.topic(), "made here")
    assert facts.all_facts(copy) == {}

    home.channel("theirs")
    again = Carrier()
    copy = again.carry(home.topic())
    again.broker.delete_channel(again.topic(), "theirs")
    assert list(facts.all_facts(copy)) == ["theirs"]


def test_a_deleted_topic_takes_what_is_carried_with_it(home, carrier):
    copy = carrier.carry(home.topic())
    carrier.broker.delete_topic("t")

    assert copy.deleted
    assert not copy.channels


def test_nothing_is_noted_in_the_log_of_another(home, carrier):
    channel = carrier.channel()
    copy = carrier.carry(home.topic())
    copy.take_changed()
    carrier.broker.pause_channel(carrier.topic(), channel, paused=True)
    carrier.broker.empty_channel(carrier.topic(), channel)

    assert copy.staged_notes() == []
    assert copy.take_changed()


def test_a_policy_is_that_of_the_channel_here(home, carrier):
    def settings_of(_topic, channel):
        return Settings(max_attempts=1, dead_letter_topic="dead") if channel else Settings()

    copy = carrier.carry(home.topic())
    carrier.broker.apply(settings_of)
    consumer, outlet = carrier.subscribe(carrier.channel(), rdy=1)
    (message_id, _, _) = outlet.taken()[0]

    say(carrier, consumer, b"REQ " + message_id + b" 0\n")

    assert copy.channels["c"].dying.count == 1


def test_what_cannot_be_read_of_a_copy_is_no_loss(home, carrier, first):
    lose_all_but(home.topic(), first + 5)
    copy = carrier.carry(home.topic())
    _, outlet = carrier.subscribe(carrier.channel(), rdy=100)

    assert len(bodies(outlet)) == 5
    assert copy.channels["c"].lost_count == 0
    assert facts.had(copy) == [(first + 5, first + 10)]


# --- counted


def test_what_is_done_with_carried_messages_counts_at_the_own_channel_and_stays_there(home, carrier):
    copy = carrier.carry(home.topic())
    channel = carrier.channel()
    consumer, outlet = carrier.subscribe(channel, rdy=4, msg_timeout=5)
    (first, _, _), *_ = outlet.taken()
    consumer.rdy = 0
    say(carrier, consumer, b"REQ " + first + b" 0\n")
    channel.changed = False
    carried.gather_counts(channel)
    assert (channel.requeue_count, channel.delivered_count, channel.changed) == (1, 4, True)

    carrier.advance(10)
    carried.detach(carrier.broker, copy)
    carried.gather_counts(channel)

    assert (channel.requeue_count, channel.timeout_count, channel.delivered_count) == (1, 3, 4)


def test_what_the_home_of_a_carried_log_has_counted_is_not_counted_again(home, carrier):
    home.channel().requeue_count = 7
    copy = carrier.carry(home.topic())
    carried.gather_counts(carrier.channel())

    assert carrier.channel().requeue_count == 0
    assert carried.detach(carrier.broker, copy)
    assert carrier.channel().requeue_count == 0


# --- allowed


def test_only_what_a_carrier_serves_is_given_out(home, carrier, first):
    copy = carrier.carry(home.topic(), [(first + 2, first + 5)])
    _, outlet = carrier.subscribe(carrier.channel(), rdy=100)

    assert bodies(outlet) == [b"2", b"3", b"4"]
    assert copy.channels["c"].depth == 0
    assert facts.facts(copy, "c").finished == []

    carried.allow(carrier.broker, copy, None)
    carrier.turn()
    assert len(bodies(outlet)) == 7


def test_what_a_topic_without_channels_does_not_serve_goes_to_no_channel(carrier):
    home = Node()
    home.publish(b"0", b"1")
    first = home.topic().log.next_seq - 2
    copy = carrier.carry(home.topic(), [(first, first + 1)])
    _, outlet = carrier.subscribe(carrier.channel("a"), rdy=100)
    assert bodies(outlet) == [b"0"]

    carried.allow(carrier.broker, copy, None)
    carrier.turn()

    assert bodies(outlet) == [b"1"]


def test_one_that_stops_lets_what_is_in_flight_be_answered_and_gives_out_nothing(home, carrier, first):
    copy = carrier.carry(home.topic())
    consumer, outlet = carrier.subscribe(carrier.channel(), rdy=3)
    given = [message_id for message_id, _, _ in outlet.taken()]
    carried.stop(carrier.broker, copy)

    assert not carried.detach(carrier.broker, copy)
    assert carried.in_flight(copy) == {"c": [(first, first + 3)]}
    say(carrier, consumer, b"FIN " + given[0] + b"\nREQ " + given[1] + b" 0\n")
    carrier.advance(100)

    assert bodies(outlet) == []
    assert carried.in_flight(copy) == {}
    assert facts.facts(copy, "c").finished == [(first, first + 1)]
    assert carried.detach(carrier.broker, copy)


def test_a_detached_log_leaves_consumers_and_own_messages_as_they_are(home, carrier):
    channel = carrier.channel()
    copy = carrier.carry(home.topic())
    consumer, outlet = carrier.subscribe(channel, rdy=100)
    sibling = copy.channels["c"]

    assert carried.detach(carrier.broker, copy, force=True)

    assert (consumer.in_flight, channel.siblings, carrier.topic().carried) == (0, [], [])
    carrier.advance(1000)
    outlet.taken()
    carrier.publish(b"ours")
    assert bodies(outlet) == [b"ours"]
    assert sibling.deleted


# --- told


def test_a_home_that_comes_back_learns_what_was_finished_and_notes_it(home, carrier, first):
    copy = carrier.carry(home.topic())
    consumer, outlet = carrier.subscribe(carrier.channel(), rdy=4)
    say(carrier, consumer, b"".join(b"FIN " + message_id + b"\n" for message_id, _, _ in outlet.taken()))
    told = facts.facts(copy, "c")
    again = copy_of(home.topic(), home)

    learned = carried.learn(home.broker, home.topic(), "c", told, higher=False, stored=list)

    assert learned == 4
    assert home.channel().lowest() == first + 4
    (noted,) = home.topic().staged_notes()
    replay.apply(again, noted)
    replay.apply(again, noted)
    assert again.channels["c"].lowest() == first + 4


def test_facts_of_another_generation_are_ignored_by_the_home(home, first):
    told = ChannelFacts(generation(), [(first, first + 10)])

    assert carried.learn(home.broker, home.topic(), "c", told, higher=False, stored=list) == 0
    assert home.channel().depth == 10


def test_the_channel_of_a_higher_holder_is_the_channel(home, carrier, first):
    copy = carrier.carry(home.topic())
    _, outlet = carrier.subscribe(carrier.channel(), rdy=3)
    outlet.taken()
    told = ChannelFacts(generation(), [(first, first + 8)])

    carried.learn(carrier.broker, copy, "c", told, higher=True, stored=lambda: [(first, first + 10)])
    carrier.turn()

    assert copy.channels["c"].generation == told.generation
    assert bodies(outlet) == [b"8", b"9"]
    assert carrier.channel().siblings == [copy.channels["c"]]


def test_a_lower_holders_channel_does_not_replace_that_of_a_carrier(home, carrier, first):
    copy = carrier.carry(home.topic())
    before = copy.channels["c"].generation
    told = ChannelFacts(generation(), [(first, first + 8)])

    assert carried.learn(carrier.broker, copy, "c", told, higher=False, stored=list) == 0
    assert copy.channels["c"].generation == before


def test_a_channel_that_only_the_other_knows_is_made_and_owes_what_is_not_finished(home, first):
    told = ChannelFacts(generation(), [(first, first + 7)])
    stored = [(first, first + 10)]
    copy = copy_of(home.topic(), home)

    carried.learn(home.broker, home.topic(), "n", told, higher=False, stored=lambda: stored)
    noted = list(home.topic().staged_notes())
    home.turn()

    made = home.topic().channels["n"]
    assert made.generation == told.generation
    assert made.waiting() == [(first + 7, first + 10)]
    for note in noted:
        replay.apply(copy, note)
    assert copy.channels["n"].generation == told.generation
    assert copy.channels["n"].waiting() == [(first + 7, first + 10)]


def test_a_channel_deleted_at_home_is_not_made_again_by_what_a_carrier_tells(home, carrier):
    copy = carrier.carry(home.topic())
    home.broker.delete_channel(home.topic(), "c")

    carried.learn(home.broker, home.topic(), "c", facts.facts(copy, "c"), higher=False, stored=list)

    assert "c" not in home.topic().channels


# --- coming home


def test_a_home_holds_back_what_the_carrier_has_in_flight(home, first):
    carried.hold_back(home.topic(), [(0, first + 10)])
    home.publish(b"new")
    _, outlet = home.subscribe(home.channel(), rdy=100)
    assert bodies(outlet) == [b"new"]

    carried.give_out(home.broker, home.topic(), {"c": [(first + 3, first + 5)]})
    home.turn()
    assert bodies(outlet) == [b"0", b"1", b"2", b"5", b"6", b"7", b"8", b"9"]

    carried.unite(home.broker, home.topic(), home.channel(), [(first + 3, first + 4)])
    carried.give_out(home.broker, home.topic(), {})
    home.turn()
    assert bodies(outlet) == [b"4"]


def test_very_many_ranges_become_several_notes(home, monkeypatch):
    topic, channel = home.topic(), home.channel()
    home.publish(*[b"x"] * 100)
    topic.staged_notes().clear()
    first = topic.log.next_seq - 100
    monkeypatch.setattr(carried, "_NOTED_AT_ONCE", 20)
    carried.unite(home.broker, topic, channel, [(first + at, first + at + 1) for at in range(0, 100, 2)])

    assert len(topic.staged_notes()) == 3
    assert all(notes.FINISH.encode() in note for note in topic.staged_notes())
