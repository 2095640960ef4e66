from dataclasses import replace

from nsqadmin.figures.attention import Level, of_missing
from nsqadmin.figures.instant import Instant
from nsqadmin.figures.missing import EMPTY_S, MOST_MISSING, Missing, MissingBook


def at(seconds):
    """A moment; the time of day, which is set now and then, decides nothing."""
    return Instant(int(seconds * 10**9), 1_800_000_000 - 3600.0 * seconds)


def gone(address="a:4151", messages=300, seen_s=0.0):
    return Missing(address, "vm", at(0), None if seen_s is None else at(seen_s), messages, topics=2)


def addresses(book, now_s=1.0):
    return [one.address for one in book.at(at(now_s))]


def carried(*, seen_s=0.0):
    """A book in which the home of identity `h` left, and another node was seen to carry it."""
    book = MissingBook()
    book.left(replace(gone(seen_s=seen_s), identity="h"))
    book.carries("b:4151", 1, {"h", "other"}, at(10))
    return book


def test_a_node_that_left_is_missed_until_it_is_back():
    book = MissingBook()
    book.left(gone())

    assert addresses(book, 10**6) == ["a:4151"]
    book.back(["b:4151", "a:4151"])
    assert addresses(book) == []


def test_a_dismissed_node_is_missed_no_longer():
    book = MissingBook()
    book.left(gone())

    assert book.dismiss("a:4151")
    assert not book.dismiss("a:4151")
    assert addresses(book) == []


def test_one_that_left_empty_is_forgotten_after_a_while():
    book = MissingBook()
    book.left(gone(messages=0))

    assert addresses(book, EMPTY_S - 1) == ["a:4151"]
    assert addresses(book, EMPTY_S + 1) == []


def test_those_that_held_most_come_first_and_are_kept_longest():
    book = MissingBook()
    for number in range(MOST_MISSING + 10):
        book.left(gone(f"node-{number}:4151", messages=number))

    assert len(addresses(book)) == MOST_MISSING
    assert addresses(book)[0] == f"node-{MOST_MISSING + 9}:4151"
    assert "node-0:4151" not in addresses(book)


def test_a_node_that_left_with_messages_is_trouble_and_an_empty_one_is_not():
    held = of_missing(gone(), at(40))
    empty = of_missing(gone(messages=0), at(40))
    unseen = of_missing(gone(messages=0, seen_s=None), at(40))

    assert held.text.startswith("nsqd left 40 s ago with 300 messages in 2 topics")
    assert (held.level, empty.level, unseen.level) == (Level.TROUBLE, Level.WATCH, Level.TROUBLE)
    assert empty.text == "nsqd left 40 s ago; it held no messages"


def test_a_node_whose_copy_is_given_out_is_no_trouble_and_says_where():
    node = replace(gone(), carried_by=("10.0.0.2:4151",), carried_owed=3)

    concern = of_missing(node, at(40))

    assert concern.level is Level.WATCH
    assert "10.0.0.2:4151 gives them out from a copy, 3 messages of it owed still" in concern.text


def test_a_node_is_missed_no_longer_when_all_of_it_was_delivered_from_a_copy():
    book = carried()
    book.carries("b:4151", 1, {"h", "other"}, at(11))
    assert addresses(book) == ["a:4151"]

    book.carries("b:4151", 1, {"other"}, at(12))

    assert addresses(book) == []


def test_a_node_whose_messages_were_delivered_before_it_was_missed_is_not_missed():
    book = MissingBook()
    book.carries("b:4151", 1, {"h"}, at(10))
    book.carries("b:4151", 1, set(), at(12))

    book.left(replace(gone(seen_s=9), identity="h"))

    assert addresses(book) == []


def test_a_node_that_was_back_and_left_again_is_missed_with_its_new_messages():
    book = carried()
    book.back(["a:4151"])
    book.carries("b:4151", 1, set(), at(12))

    book.left(replace(gone(seen_s=20), identity="h"))

    assert addresses(book) == ["a:4151"]


def test_a_node_that_answers_without_being_listed_has_its_messages_back_from_its_carrier():
    book = carried()

    book.carries("b:4151", 1, set(), at(12))
    assert [one.address for one in book.at(at(12), answering={"a:4151"})] == ["a:4151"]
    book.seen("a:4151", at(13), messages=7, topics=1)

    assert [(one.messages, one.topics) for one in book.at(at(14))] == [(7, 1)]


def test_a_node_is_missed_while_another_carries_it_still():
    book = carried()
    book.carries("c:4151", 1, {"h"}, at(11))

    book.carries("b:4151", 1, set(), at(12))
    assert addresses(book) == ["a:4151"]
    book.carries("c:4151", 1, set(), at(13))
    assert addresses(book) == []


def test_a_carrier_that_was_restarted_has_not_delivered_what_it_does_not_carry_yet():
    book = carried()

    book.carries("b:4151", 2, set(), at(12))
    assert addresses(book) == ["a:4151"]
    book.carries("b:4151", 2, {"h"}, at(13))
    book.carries("b:4151", 2, set(), at(14))
    assert addresses(book) == []


def test_a_carrier_that_left_has_not_delivered_what_it_carried_and_hinders_no_other():
    book = carried()
    book.left(replace(gone("b:4151"), identity="b"))
    book.carries("b:4151", 1, set(), at(12))
    assert addresses(book) == ["a:4151", "b:4151"]

    book.carries("c:4151", 1, {"h"}, at(13))
    book.carries("c:4151", 1, set(), at(14))

    assert addresses(book) == ["b:4151"]
