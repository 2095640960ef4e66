"""Whether each message arrived, by publisher and number, and why some arrived twice."""

import random

import pytest

from load.book import Book
from load.marks import Stamp
from load.tally import Tally

CHANNEL = "load channel-0"
NODE = "127.0.0.1:4150"


class Told:
    """A tally and the workers that report to it."""

    def __init__(self, *channels):
        self.tally = Tally(channels or [CHANNEL])
        self.books = {}

    def worker(self, name="w1"):
        return self.books.setdefault(name, Book(name))

    def publish(self, *numbers, publisher="p1", worker="w1"):
        self.worker(worker).acked("load", publisher, numbers)

    def deliver(self, *numbers, publisher="p1", worker="w1", attempts=1, node=NODE, channel=CHANNEL):
        for number in numbers:
            self.worker(worker).received(channel, node, Stamp(publisher, number, 0), attempts)

    def give_back(self, cause, number, publisher="p1", worker="w1"):
        self.worker(worker).unfinished(cause, CHANNEL, Stamp(publisher, number, 0))

    def tell(self):
        for book in self.books.values():
            self.tally.add(book.delta())

    def outcome(self):
        for book in self.books.values():
            self.tally.add(book.delta(last=True))
        return self.tally.outcome()


@pytest.fixture
def told():
    return Told()


def test_all_is_well_when_each_message_came_once(told):
    told.publish(*range(100))
    told.deliver(*range(50), worker="w2")
    told.tell()
    told.deliver(*range(50, 100), worker="w3")

    outcome = told.outcome()

    assert (outcome.acked, outcome.received[CHANNEL], outcome.missing, outcome.unknown) == (100, 100, 0, 0)
    assert outcome.duplicates == {}
    assert told.tally.silent == []


def test_a_message_that_never_came_is_named_by_publisher_and_number(told):
    told.publish(*range(10))
    told.publish(*range(10), publisher="p2", worker="w2")
    told.deliver(*range(10))
    told.deliver(0, 1, 2, 4, 5, 6, 7, 9, publisher="p2")

    outcome = told.outcome()

    assert (outcome.missing, outcome.missing_names) == (2, ["load p2 3", "load p2 8"])


def test_every_channel_is_owed_every_message():
    told = Told(CHANNEL, "load channel-1")
    told.publish(1, 2)
    told.deliver(1, 2)
    told.deliver(2, channel="load channel-1")

    assert told.outcome().missing_names == ["load p1 1"]


def test_a_message_is_owed_to_the_channels_of_its_own_topic():
    told = Told(CHANNEL, "other channel-0")
    told.publish(1)
    told.worker().acked("other", "p1", [1])
    told.deliver(1)

    assert told.outcome().missing_names == ["other p1 1"]


def test_a_message_that_nobody_sent_is_named(told):
    told.publish(1)
    told.deliver(1, 2)

    outcome = told.outcome()

    assert (outcome.unknown, outcome.unknown_names) == (1, ["load p1 2"])


@pytest.mark.parametrize("kind", ["unsure", "refused"])
def test_a_message_without_an_ok_may_come_or_not(told, kind):
    getattr(told.worker(), kind)("load", "p1", [1, 2])
    told.deliver(1)

    outcome = told.outcome()

    assert (outcome.missing, outcome.unknown, getattr(outcome, kind)) == (0, 0, 2)


def test_what_came_again_has_its_cause(told):
    told.publish(*range(10))
    told.deliver(*range(10))
    told.give_back("requeue", 1)
    told.give_back("timeout", 2)
    told.give_back("lost", 3)
    told.deliver(1, 2, 3, attempts=2, worker="w2")
    told.deliver(4, attempts=2, worker="w2")  # attempt 2: nsqd got no answer in time
    told.deliver(5, worker="w2")  # attempt 1: nothing explains the repeat

    assert told.outcome().duplicates == {"requeue": 1, "timeout": 2, "kill": 1, "unexplained": 1}


def test_what_came_again_from_a_node_that_was_lost_is_of_its_death(told):
    told.publish(1)
    told.deliver(1)
    told.worker().lost(NODE)
    told.deliver(1)

    assert told.outcome().duplicates == {"kill": 1}


def test_a_message_that_was_given_back_and_never_came_again_is_missing(told):
    told.publish(1, 2)
    told.deliver(1, 2)
    told.give_back("requeue", 2)

    assert told.outcome().missing_names == ["load p1 2"]


def test_each_time_a_message_is_given_back_it_must_come_again(told):
    told.publish(1)
    told.deliver(1)
    for _ in range(3):
        told.give_back("requeue", 1)
        told.deliver(1, attempts=2)
    outcome = told.outcome()

    assert (outcome.duplicates, outcome.missing) == ({"requeue": 3}, 0)


def test_a_delta_that_comes_twice_counts_once_and_one_that_never_comes_is_told(told):
    told.publish(1)
    delta = told.worker().delta()
    told.tally.add(delta)
    told.tally.add(delta)
    told.worker().delta()
    told.deliver(1)

    outcome = told.outcome()

    assert (outcome.acked, outcome.duplicates, told.tally.counts["deltas that never came"]) == (1, {}, 1)


def test_a_worker_without_last_words_is_named(told):
    told.publish(1)
    told.tell()

    assert told.tally.silent == ["w1"]


def test_workers_may_tell_in_any_order():
    rng = random.Random(7)
    books = [Book(f"w{number}") for number in range(3)]
    deltas = []
    for first in range(0, 300, 10):
        rng.choice(books).acked("load", "p1", range(first, first + 10))
        for number in range(first, first + 10):
            rng.choice(books).received(CHANNEL, NODE, Stamp("p1", number, 0), 1)
        deltas += [book.delta(last=first == 290) for book in books]
    # The deltas of one worker arrive in order; the workers come in any order.
    tally = Tally([CHANNEL])
    for book in rng.sample(books, 3):
        for delta in deltas:
            if delta["worker"] == book.worker:
                tally.add(delta)

    outcome = tally.outcome()

    assert (outcome.acked, outcome.missing, outcome.unknown, outcome.duplicates) == (300, 0, 0, {})


def test_a_tally_is_the_same_after_it_was_written_down(told):
    told.publish(*range(10))
    told.deliver(*range(9))
    told.give_back("requeue", 3)
    told.deliver(3, attempts=2)
    told.worker().error("ConnectionError: gone")
    told.worker().latency("publish").record(3.0)
    expected = told.outcome()

    again = Tally.from_json(told.tally.to_json())

    assert again.outcome() == expected
    assert again.errors == {"ConnectionError: gone": 1}
    assert len(again.latency["publish"]) == 1
