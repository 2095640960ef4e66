from dataclasses import replace

import pytest

from nsqadmin.stats.instant import Instant
from nsqadmin.stats.missing import EMPTY_S, MAX_MISSING, MissingNode, MissingNodes
from nsqadmin.stats.problems import Level, problem_of_missing


def at(seconds):
    """A moment; the time of day, which is set now and then, decides nothing."""
    return Instant(int(seconds * 10**9), 1_800_000_000 - 3600.0 * seconds)


def gone(address="a:4151", messages=300, seen_s=0.0):
    return MissingNode(address, "vm", at(0), None if seen_s is None else at(seen_s), messages, topics=2)


def addresses(book, now_s=1.0):
    return [one.address for one in book.at(at(now_s))]


def failed_over(*, seen_s=0.0):
    """A book in which the node of identity `h` left, and another node has promoted its copy."""
    book = MissingNodes()
    book.promoted("b:4151", 1, {}, at(0))
    book.add(replace(gone(seen_s=seen_s), identity="h"))
    book.promoted("b:4151", 1, {"h": 300, "other": 2}, at(10))
    return book


def test_node_that_left_is_missed_until_it_is_back():
    book = MissingNodes()
    book.add(gone())

    assert addresses(book, 10**6) == ["a:4151"]
    book.back(["b:4151", "a:4151"])
    assert addresses(book) == []


def test_dismissed_node_is_missed_no_longer():
    book = MissingNodes()
    book.add(gone())

    assert book.dismiss("a:4151")
    assert not book.dismiss("a:4151")
    assert addresses(book) == []


def test_empty_down_node_is_forgotten_after_a_while():
    book = MissingNodes()
    book.add(gone(messages=0))

    assert addresses(book, EMPTY_S - 1) == ["a:4151"]
    assert addresses(book, EMPTY_S + 1) == []


def test_down_nodes_with_most_messages_come_first_and_stay_longest():
    book = MissingNodes()
    for number in range(MAX_MISSING + 10):
        book.add(gone(f"node-{number}:4151", messages=number))

    assert len(addresses(book)) == MAX_MISSING
    assert addresses(book)[0] == f"node-{MAX_MISSING + 9}:4151"
    assert "node-0:4151" not in addresses(book)


def test_node_that_left_with_messages_is_problem_and_empty_one_is_not():
    held = problem_of_missing(gone(), at(40))
    empty = problem_of_missing(gone(messages=0), at(40))
    unseen = problem_of_missing(gone(messages=0, seen_s=None), at(40))

    assert held.text == "Down for 40 s. 300 messages in 2 topics are unavailable until it is back"
    replicated = problem_of_missing(replace(gone(), replicated=True), at(40))
    assert replicated.text.endswith("are unavailable until a replica takes over, or it is back")
    assert replicated.level is Level.PROBLEM
    assert (held.level, empty.level, unseen.level) == (Level.PROBLEM, Level.WARNING, Level.PROBLEM)
    assert empty.text == "Down for 40 s. It had no messages"
    assert unseen.text == "Down for 40 s. Its messages are unknown"


def test_owner_of_promoted_copy_is_named():
    node = replace(gone(), owners=("10.0.0.2:4151",), pending=3)
    unseen = replace(gone(messages=0, seen_s=None), owners=("10.0.0.2:4151",), pending=3)

    for problem in (problem_of_missing(node, at(40)), problem_of_missing(unseen, at(40))):
        assert problem.level is Level.WARNING
        assert problem.text.endswith("its messages are delivered by 10.0.0.2:4151 (3 messages pending there)")


def test_unlisted_answering_node_is_down_with_its_present_messages():
    book = failed_over()

    book.promoted("b:4151", 1, {}, at(12))
    assert [one.address for one in book.at(at(12), answering={"a:4151"})] == ["a:4151"]
    book.update("a:4151", at(13), messages=7, topics=1)

    assert [(one.messages, one.topics) for one in book.at(at(14))] == [(7, 1)]


A, B, C = "a:4151", "b:4151", "c:4151"


def promoted(node, at_s, start=1, **pending):
    return lambda book: book.promoted(node, start, pending, at(at_s))


def left(node, seen_s=0.0, identity="h"):
    return lambda book: book.add(replace(gone(node, seen_s=seen_s), identity=identity))


FAILED_OVER = [promoted(B, 0), left(A), promoted(B, 10, h=300, other=2)]
# What happens to the nodes, and which of them are missed after it; None is not asked.
FAILOVERS = {
    "delivered": [
        *((one, None) for one in FAILED_OVER),
        (promoted(B, 11, h=1, other=2), [A]),
        (promoted(B, 12, h=0, other=2), []),
    ],
    "dropped": [*((one, None) for one in FAILED_OVER), (promoted(B, 12, other=2), [])],
    "promoted and delivered between two looks": [
        (promoted(B, 0), None),
        (left(A), [A]),
        (promoted(B, 12, h=0), []),
    ],
    "channel state of an earlier failover": [
        (promoted(B, 0, h=0), None),
        (left(A, seen_s=5), None),
        (promoted(B, 12, h=0), None),
        (promoted(C, 12, h=0), [A]),
    ],
    "delivered before it was missed": [
        (promoted(B, 10, h=5), None),
        (promoted(B, 12), None),
        (left(A, seen_s=9), []),
    ],
    "back and left again": [
        *((one, None) for one in FAILED_OVER),
        (lambda book: book.back([A]), []),
        (promoted(B, 12), None),
        (left(A, seen_s=20), [A]),
    ],
    "a second copy has pending messages": [
        *((one, None) for one in FAILED_OVER),
        (promoted(C, 11, h=1), None),
        (promoted(B, 12, h=0), [A]),
        (promoted(C, 13), []),
    ],
    "owner restarts and loads its copies later": [
        *((one, None) for one in FAILED_OVER),
        (promoted(B, 12, start=2), [A]),
        (promoted(B, 13, start=2, h=300), None),
        (promoted(B, 14, start=2), []),
    ],
    "owner leaves and another delivers": [
        *((one, None) for one in FAILED_OVER),
        (left(B, identity="b"), None),
        (promoted(B, 12), [A, B]),
        (promoted(C, 13, h=300), None),
        (promoted(C, 14), [B]),
    ],
}


@pytest.mark.parametrize("name", FAILOVERS)
def test_node_is_missed_until_its_messages_are_delivered(name):
    book = MissingNodes()

    for step, missed in FAILOVERS[name]:
        step(book)
        assert missed is None or addresses(book) == missed
