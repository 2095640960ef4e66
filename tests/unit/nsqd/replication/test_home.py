"""A node that is copied: which keepers' acknowledgements count, and which ones publishers wait for."""

import random

import pytest

from nsqd.replication.choosing import Appointed
from nsqd.replication.copies import Copies
from nsqd.replication.frames import Fellow, Finished, StillOut, Told
from nsqd.replication.home import HomeSettings
from nsqd.replication.willing import Keeping
from tests.support.pair import DATA, Pair
from tests.support.simulated_disk import SimulatedDisk

_S = 1_000_000_000


@pytest.fixture
def pair():
    return Pair()


def test_a_publisher_is_told_when_the_keeper_has_its_message(pair):
    pair.connect()
    pair.move()
    pair.home.publish(b"one")
    told = []

    wait = pair.home.home.wait(pair.home.store())
    wait.tells.append(told.append)
    assert told == []
    pair.move()

    assert told == [""]


def test_those_who_publish_in_one_turn_wait_together(pair):
    pair.connect()
    pair.move()
    pair.home.publish(b"one")
    first = pair.home.home.wait(pair.home.store())

    assert pair.home.home.wait(pair.home.store()) is first
    pair.home.publish(b"two")
    assert pair.home.home.wait(pair.home.store()) is not first


def test_with_strict_syncing_the_keeper_syncs_before_anybody_is_told():
    pair = Pair(HomeSettings(replicas=1, strict=True))
    pair.connect()
    pair.move()
    pair.home.publish(b"one")
    told = []
    pair.home.home.wait(pair.home.store()).tells.append(told.append)
    pair.move()
    # At the first message the copy becomes complete, which is a reason of its own to sync.
    pair.home.publish(b"two")
    pair.home.home.wait(pair.home.store()).tells.append(told.append)
    pair.move()

    assert told == ["", ""]
    after = pair.disk.after_power_cut(random.Random(3))
    assert after.read_file(pair.copy_path() / "00000001.log") == pair.at_home()["00000001.log"]


def test_an_append_at_which_one_keeper_is_given_up_still_goes_to_the_others(pair, monkeypatch):
    monkeypatch.setattr("nsqd.replication.home_link.MOST_BEHIND", 10_000)
    pair.connect()
    pair.move()
    slow = pair.link
    # From here on the frames for the first keeper are not sent.
    pair.link = pair.kept = None
    pair.keeping = Keeping(Copies(SimulatedDisk(DATA), DATA), b"o" * 16, 3, "other:4150")
    pair.home.appointed = Appointed(2, "other:4150")
    pair.connect()
    pair.move()
    while not slow.closing:
        pair.settle()
        pair.home.publish(b"x" * 3000)
    told = []

    # The publisher waits for the other keeper, which does not have the message yet.
    pair.home.home.wait(pair.home.store()).tells.append(told.append)
    pair.settle()

    assert told == [""]
    assert pair.copied() == pair.at_home()


@pytest.mark.parametrize(("refuse", "said"), [(False, ""), (True, "0 of 1 keepers are linked")])
def test_a_publisher_does_not_hang_on_a_keeper_that_goes(refuse, said):
    pair = Pair(HomeSettings(replicas=1, refuse=refuse))
    pair.connect()
    pair.move()
    pair.home.publish(b"one")
    told = []
    pair.home.home.wait(pair.home.store()).tells.append(told.append)

    pair.cut()

    assert told == [said]
    assert pair.home.home.lacks(pair.home.store()) == said
    assert pair.home.home.wait(pair.home.store()) is None


def two_linked(pair):
    """Link two keepers; the frames for the first one, which is returned, are not sent."""
    pair.connect()
    pair.move()
    slow = pair.link
    pair.link = pair.kept = None
    pair.keeping = Keeping(Copies(SimulatedDisk(DATA), DATA), b"o" * 16, 3, "other:4150")
    pair.home.appointed = Appointed(2, "other:4150")
    pair.connect()
    pair.move()
    return slow


def test_a_publisher_waits_for_the_linked_one_of_two_wanted_keepers():
    pair = Pair(HomeSettings(replicas=2))
    pair.connect()
    pair.move()
    pair.home.publish(b"one")
    told = []

    wait = pair.home.home.wait(pair.home.store())
    assert wait is not None
    wait.tells.append(told.append)
    assert told == []
    pair.move()

    assert told == [""]
    assert pair.home.home.wait(pair.home.store()) is None


@pytest.mark.parametrize("refuse", [False, True])
def test_a_publisher_waits_for_the_second_keeper_when_the_first_is_lost(refuse):
    pair = Pair(HomeSettings(replicas=2, refuse=refuse))
    slow = two_linked(pair)
    pair.home.publish(b"one")
    told = []
    pair.home.home.wait(pair.home.store()).tells.append(told.append)

    slow.end("cut")
    assert told == (["1 of 2 keepers are linked"] if refuse else [])
    pair.move()

    assert told == (["1 of 2 keepers are linked"] if refuse else [""])


def test_a_publisher_hears_how_many_keepers_are_linked_when_the_slow_one_is_lost():
    pair = Pair(HomeSettings(replicas=2, refuse=True))
    slow = two_linked(pair)
    pair.home.publish(b"one")
    pair.move()
    told = []
    pair.home.home.wait(pair.home.store()).tells.append(told.append)

    slow.end("cut")

    assert told == ["1 of 2 keepers are linked"]


def test_a_keeper_of_former_days_hears_of_a_deleted_topic_too(pair):
    pair.home.home.fellows = lambda: (Fellow(1, "former:4150"), Fellow(2, "keeper:4150"))
    pair.home.publish(b"one")

    pair.home.delete()

    assert pair.home.home.untold == {"t": {"former:4150", "keeper:4150"}}
    pair.connect()
    pair.move()
    assert pair.home.home.untold == {"t": {"former:4150"}}


def test_a_topic_that_was_deleted_while_the_keeper_was_away_goes_when_it_is_back(pair):
    pair.connect()
    pair.move()
    pair.home.publish(b"one")
    pair.settle()
    pair.cut()
    pair.home.delete()
    pair.home.publish(b"of another life")
    assert pair.home.home.untold == {"t": {"keeper:4150"}}

    pair.connect()
    pair.settle()

    assert pair.copied() == pair.at_home()
    assert pair.home.home.untold == {}
    assert pair.home.appointed.number == 1


def test_a_home_hears_what_a_keeper_finished_before_it_goes_on_with_its_copy(pair):
    pair.home.publish(b"a")
    heard = []
    pair.home.home.heard = lambda _link, topic, frame: heard.append((topic, frame))
    released = []
    pair.keeping.released = lambda _identity: bool(released)
    pair.connect()
    pair.move()
    assert pair.kept.waits_for_release
    (number,) = pair.kept.topics

    facts = (Finished(number, "c", 5, ((1, 2),)), StillOut(number, "c", ((2, 3),)), Told())
    for frame in (*facts, Finished(99, "c", 5, ())):
        pair.kept.say(frame)
    pair.move()
    assert heard == [("t", facts[0]), ("t", facts[1]), ("", facts[2])]

    released.append(True)
    pair.kept.released()
    pair.settle()
    assert pair.copied() == pair.at_home()
