"""Whether each message arrived, by publisher and number, and why some arrived twice."""

import random

import pytest

from load.book import Book
from load.marks import Stamp
from load.tally import Tally

CHANNEL = "load channel-0"
NODE = "127.0.0.1:4150"


class TallyDriver:
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

    def report(self):
        for book in self.books.values():
            self.tally.add(book.delta())

    def outcome(self):
        for book in self.books.values():
            self.tally.add(book.delta(last=True))
        return self.tally.outcome()


@pytest.fixture
def driver():
    return TallyDriver()


def test_run_with_single_deliveries_has_no_fault(driver):
    driver.publish(*range(100))
    driver.deliver(*range(50), worker="w2")
    driver.report()
    driver.deliver(*range(50, 100), worker="w3")

    outcome = driver.outcome()

    assert (outcome.acked, outcome.received[CHANNEL], outcome.missing, outcome.unknown) == (100, 100, 0, 0)
    assert outcome.duplicates == {}
    assert driver.tally.unreported == []


def test_message_that_never_came_is_named_by_publisher_and_number(driver):
    driver.publish(*range(10))
    driver.publish(*range(10), publisher="p2", worker="w2")
    driver.deliver(*range(10))
    driver.deliver(0, 1, 2, 4, 5, 6, 7, 9, publisher="p2")

    outcome = driver.outcome()

    assert (outcome.missing, outcome.missing_names) == (2, ["load p2 3", "load p2 8"])


def test_message_that_one_of_two_channels_lacks_is_missing():
    driver = TallyDriver(CHANNEL, "load channel-1")
    driver.publish(1, 2)
    driver.deliver(1, 2)
    driver.deliver(2, channel="load channel-1")

    assert driver.outcome().missing_names == ["load p1 1"]


def test_message_is_expected_on_channels_of_its_topic():
    driver = TallyDriver(CHANNEL, "other channel-0")
    driver.publish(1)
    driver.worker().acked("other", "p1", [1])
    driver.deliver(1)

    assert driver.outcome().missing_names == ["other p1 1"]


def test_message_that_was_not_sent_is_named(driver):
    driver.publish(1)
    driver.deliver(1, 2)

    outcome = driver.outcome()

    assert (outcome.unknown, outcome.unknown_names) == (1, ["load p1 2"])


@pytest.mark.parametrize("kind", ["unsure", "refused"])
def test_message_without_ok_may_come_or_not(driver, kind):
    getattr(driver.worker(), kind)("load", "p1", [1, 2])
    driver.deliver(1)

    outcome = driver.outcome()

    assert (outcome.missing, outcome.unknown, getattr(outcome, kind)) == (0, 0, 2)


def test_duplicate_has_its_cause(driver):
    driver.publish(*range(10))
    driver.deliver(*range(10))
    driver.give_back("requeue", 1)
    driver.give_back("timeout", 2)
    driver.give_back("lost", 3)
    driver.deliver(1, 2, 3, attempts=2, worker="w2")
    driver.deliver(4, attempts=2, worker="w2")  # attempt 2: nsqd got no answer in time
    driver.deliver(5, worker="w2")  # attempt 1: nothing explains the repeat

    assert driver.outcome().duplicates == {"requeue": 1, "timeout": 2, "kill": 1, "unexplained": 1}


def test_duplicate_from_lost_node_is_explained_by_kill(driver):
    driver.publish(1)
    driver.deliver(1)
    driver.worker().lost(NODE)
    driver.deliver(1)

    assert driver.outcome().duplicates == {"kill": 1}


def test_message_that_was_given_back_and_never_came_again_is_missing(driver):
    driver.publish(1, 2)
    driver.deliver(1, 2)
    driver.give_back("requeue", 2)

    assert driver.outcome().missing_names == ["load p1 2"]


def test_requeued_message_must_come_again_each_time(driver):
    driver.publish(1)
    driver.deliver(1)
    for _ in range(3):
        driver.give_back("requeue", 1)
        driver.deliver(1, attempts=2)
    outcome = driver.outcome()

    assert (outcome.duplicates, outcome.missing) == ({"requeue": 3}, 0)


def test_repeated_delta_counts_once_and_missing_delta_is_reported(driver):
    driver.publish(1)
    delta = driver.worker().delta()
    driver.tally.add(delta)
    driver.tally.add(delta)
    driver.worker().delta()
    driver.deliver(1)

    outcome = driver.outcome()

    assert (outcome.acked, outcome.duplicates, driver.tally.counts["deltas that never came"]) == (1, {}, 1)


def test_worker_without_a_last_report_is_named(driver):
    driver.publish(1)
    driver.report()

    assert driver.tally.unreported == ["w1"]


def test_reports_of_workers_come_in_any_order():
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


def test_tally_is_the_same_after_it_was_written_down(driver):
    driver.publish(*range(10))
    driver.deliver(*range(9))
    driver.give_back("requeue", 3)
    driver.deliver(3, attempts=2)
    driver.worker().error("ConnectionError: gone")
    driver.worker().latency("publish").record(3.0)
    expected = driver.outcome()

    again = Tally.from_json(driver.tally.to_json())

    assert again.outcome() == expected
    assert again.errors == {"ConnectionError: gone": 1}
    assert len(again.latency["publish"]) == 1
