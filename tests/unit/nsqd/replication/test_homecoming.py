import pytest

from nsqd.engine.draining import report
from nsqd.engine.unread import Unread
from nsqd.log.ranges import within
from nsqd.replication.frames import Finished, StillOut, Told
from nsqd.replication.homecoming import ComingHome
from tests.support.engine import SECOND, Node

ASK = 2 * SECOND


class HomeAgain:
    """A home whose channel has messages from before its start."""

    def __init__(self, keepers=("a",), count=6, rdy=100):
        self.node = Node()
        self.channel = self.node.channel()
        self.topic = self.node.topic()
        self.node.publish(*(b"%d" % n for n in range(count)))
        self.first = self.topic.log.next_seq - count
        self.home = ComingHome(
            self.node.broker, keepers, ASK, self.node.now_ns, lambda topic: [(self.first, topic.log.next_seq)]
        )
        self.consumer, self.outlet = self.node.subscribe(self.channel, rdy)

    def seqs(self, start, end):
        return (self.first + start, self.first + end)

    def finished(self, keeper, *pairs, channel="c", generation=None):
        generation = self.channel.generation if generation is None else generation
        ranges = tuple(self.seqs(*pair) for pair in pairs)
        self.home.heard(keeper, "t", Finished(1, channel, generation, ranges))

    def out(self, keeper, *pairs, channel="c"):
        self.home.heard(keeper, "t", StillOut(1, channel, tuple(self.seqs(*pair) for pair in pairs)))

    def told(self, keeper):
        self.home.heard(keeper, "t", Told())

    def finish(self):
        """Answer all that is in flight here."""
        for start, end in self.channel.in_flight.ranges():
            for seq in range(start, end):
                self.channel.finish(seq, self.consumer, self.node.now_ns)

    def drain(self):
        """How many messages a drain waits for, and whether it is over."""
        self.node.broker.draining = True
        found = report(self.node.broker, Unread(), self.node.now_ns)
        return found["remaining"], found["drained"]

    def given(self, seconds=0.0):
        """The bodies that are delivered after that many seconds."""
        self.node.now_ns += int(seconds * SECOND)
        self.home.tick(self.node.now_ns)
        self.node.turn()
        return b"".join(body for _, _, body in self.outlet.taken())


@pytest.fixture
def home():
    return HomeAgain()


def test_what_is_old_waits_for_the_answer_and_what_is_new_does_not(home):
    home.node.publish(b"new")

    assert home.given() == b"new"
    home.told("a")
    assert home.given() == b"012345"


def test_a_keeper_that_is_silent_is_not_waited_for_longer(home):
    assert home.given(1.9) == b""
    assert home.given(0.1) == b"012345"


def test_what_a_carrier_has_finished_is_not_given_out_again(home):
    home.finished("a", (0, 2), (4, 5))
    home.told("a")

    assert home.given() == b"235"
    assert home.home.learned == 3


def test_what_a_carrier_has_in_flight_is_left_to_it_until_it_is_answered_there(home):
    home.out("a", (1, 3))
    home.told("a")
    assert home.given() == b"0345"
    assert home.given(600) == b""

    home.finished("a", (1, 2))
    home.out("a")

    assert home.given() == b"2"
    assert not home.home.is_holding


def test_a_home_is_not_drained_before_its_keepers_have_answered(home):
    assert home.drain() == (6, False)
    home.finished("a", (0, 6))
    assert home.drain() == (0, False)  # a keeper may still tell of a channel that was made there

    home.told("a")
    home.given()

    assert home.drain() == (0, True)


def test_a_home_is_not_drained_while_a_carrier_has_some_of_its_messages_in_flight(home):
    home.out("a", (1, 3))
    home.told("a")
    home.given()
    home.finish()
    assert home.drain() == (2, False)

    home.finished("a", (1, 3))
    home.out("a")
    home.given()

    assert home.drain() == (0, True)


def test_what_was_in_flight_at_a_carrier_that_is_gone_comes_again(home):
    home.out("a", (1, 3))
    home.told("a")
    home.given()

    home.home.went("a", home.node.now_ns)

    assert home.given(1.9) == b""
    assert home.given(0.1) == b"12"


def test_facts_of_another_making_of_a_channel_mean_nothing(home):
    home.finished("a", (0, 6), generation=home.channel.generation + 1)
    home.told("a")

    assert home.given() == b"012345"


def test_a_channel_that_was_made_at_the_carrier_is_made_here_too(home):
    home.finished("a", (0, 4), channel="late", generation=77)
    home.told("a")
    home.given()
    late = home.topic.channels["late"]

    assert late.generation == 77
    assert late.owed(0, home.topic.log.next_seq) == [home.seqs(4, 6)]


def test_topics_that_are_not_there_and_second_words_change_nothing(home):
    home.home.heard("a", "other", Finished(1, "c", 1, ((1, 2),)))
    home.finished("a", (0, 2))
    home.finished("a", (0, 2))

    assert home.home.learned == 2
    assert "other" not in home.node.broker.topics


def test_a_home_that_was_only_cut_off_learns_without_holding_back_what_is_old():
    home = HomeAgain(keepers=())
    assert home.given() == b"012345"
    home.out("a", (0, 2))

    home.finished("a", (0, 2))
    home.out("a")
    home.given()

    assert home.channel.owed(0, home.topic.log.next_seq) == [home.seqs(2, 6)]


def test_a_home_that_was_only_cut_off_leaves_the_carrier_what_it_has_in_flight():
    home = HomeAgain(keepers=(), rdy=0)
    home.out("a", (1, 3))

    home.node.ready(home.consumer, 100)

    assert home.given() == b"0345"


def test_what_was_lost_is_not_said_to_be_held_though_a_file_speaks_for_it(home):
    home.topic.log.had.take_out(*home.seqs(4, 6))

    held, _ = home.home.holdings("t")

    assert held == [home.seqs(0, 4)]
    assert within(home.home.settled("t"), home.first, 1 << 62) == [home.seqs(0, 4)]
    assert home.home.settled("gone") == []
