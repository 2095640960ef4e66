import pytest

from nsqcore.lookup_protocol import PeerInfo
from nsqlookupd.readiness import Patience, Readiness
from nsqlookupd.registry import Registry

S = 1_000_000_000
RECONNECT = 15 * S
AT_MOST = 60 * S


def key(name):
    return (name, 4150, 4151)


class Start:
    """An nsqlookupd that starts at time 0, and the nsqds that announce themselves to it."""

    def __init__(self):
        self.registry = Registry(300 * S, 45 * S)
        self.readiness = Readiness(self.registry, Patience(RECONNECT, AT_MOST), 0)

    def announce(self, name, *topics):
        peer = self.registry.add_peer(f"{name}:1000", PeerInfo(name, 4150, 4151, "1.3.0"), 0)
        for topic in topics:
            self.registry.register(peer, topic, "c")
        return peer

    def told(self, **nodes):
        self.readiness.learn_topics(
            [{key(name): frozenset(topics.split()) for name, topics in nodes.items()}]
        )

    def ready_at(self, now_ns):
        # Only the second check with nothing missing makes it ready.
        self.readiness.check(now_ns)
        return self.readiness.check(now_ns)


@pytest.fixture
def start():
    return Start()


def test_nsqds_get_time_to_return_without_answers_of_others(start):
    start.announce("a", "t")

    assert not start.ready_at(RECONNECT - 1)
    assert start.ready_at(RECONNECT)


def test_nsqlookupd_is_ready_when_nsqds_of_another_are_back(start):
    start.told(a="t u", b="t")
    start.announce("a", "t", "u")

    assert not start.ready_at(S)
    assert start.readiness.reason == "waiting for 1 of 2 nsqd: b:4150"
    start.announce("b", "t")
    assert start.ready_at(S)


def test_nsqd_is_back_when_all_its_topics_are(start):
    start.told(a="t u")
    peer = start.announce("a", "t")

    assert not start.ready_at(S)
    start.registry.register(peer, "u")
    assert start.ready_at(S)


def test_readiness_needs_second_check_for_last_channels(start):
    start.told(a="t")
    start.announce("a", "t")

    assert not start.readiness.check(S)
    assert start.readiness.check(S)


def test_topic_that_was_deleted_meanwhile_is_waited_for_no_longer(start):
    start.told(a="t gone")
    start.announce("a", "t")
    assert not start.ready_at(S)

    start.told(a="t")

    assert start.ready_at(S)


def test_readiness_adds_up_nsqds_of_others(start):
    start.readiness.learn_topics(
        [{key("a"): frozenset("t")}, {key("a"): frozenset("u"), key("b"): frozenset()}]
    )
    start.announce("a", "t")
    start.announce("b")

    assert not start.ready_at(S)
    assert start.readiness.reason == "waiting for 1 of 2 nsqd: a:4150"


def test_readiness_is_immediate_if_others_know_no_nsqd(start):
    start.told()

    assert start.ready_at(0)


def test_readiness_ignores_others_without_answer(start):
    start.readiness.learn_topics([])

    assert not start.ready_at(RECONNECT - 1)


def test_nsqd_that_stays_away_is_not_waited_for_for_ever(start):
    start.told(a="t")

    assert not start.ready_at(AT_MOST - 1)
    assert start.ready_at(AT_MOST)
    assert start.readiness.reason == "no longer waiting for 1 of 1 nsqd: a:4150, 60.0s are over"


@pytest.mark.parametrize(("known", "absent"), [(2, 2), (3, 2), (19, 2), (20, 3), (50, 6), (50, 50)])
def test_nsqlookupd_unknown_to_most_nsqds_is_not_ready(start, known, absent):
    names = [f"n{number}" for number in range(known)]
    start.told(**dict.fromkeys(names, "t"))
    for name in names[absent:]:
        start.announce(name, "t")

    assert not start.ready_at(1000 * AT_MOST)
    assert start.readiness.reason.startswith(f"waiting for {absent} of {known} nsqd: ")
    start.announce(names[0])  # it is there; its topics are waited for only as long as those of a single nsqd
    if absent - 1 <= max(1, known // 10):
        assert start.ready_at(1000 * AT_MOST)


def test_nsqds_that_left_the_others_too_are_not_waited_for(start):
    start.told(a="t", b="t", c="t")
    assert not start.ready_at(AT_MOST)

    start.told(c="t")

    assert start.ready_at(AT_MOST)


def test_missing_nsqds_are_counted_and_few_named(start):
    start.told(**dict.fromkeys("abcde", "t"))

    assert not start.ready_at(S)
    assert start.readiness.reason == "waiting for 5 of 5 nsqd: a:4150, b:4150, c:4150, 2 more"


def test_ready_nsqlookupd_stays_ready(start):
    start.told(a="t")
    peer = start.announce("a", "t")
    assert start.ready_at(S)

    start.registry.remove_peer(peer, 0)

    assert start.ready_at(2 * S)
