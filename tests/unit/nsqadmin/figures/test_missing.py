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


def failed_over(*, seen_s=0.0):
    """A book in which the node of identity `h` left, and another node has promoted its copy."""
    book = MissingBook()
    book.promoted("b:4151", 1, {}, at(0))
    book.left(replace(gone(seen_s=seen_s), identity="h"))
    book.promoted("b:4151", 1, {"h": 300, "other": 2}, at(10))
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

    assert held.text == "Down for 40 s. 300 messages in 2 topics are unavailable until it is back"
    replicated = of_missing(replace(gone(), replicated=True), at(40))
    assert replicated.text.endswith("are unavailable until a replica takes over, or it is back")
    assert replicated.level is Level.TROUBLE
    assert (held.level, empty.level, unseen.level) == (Level.TROUBLE, Level.WATCH, Level.TROUBLE)
    assert empty.text == "Down for 40 s. It had no messages"
    assert unseen.text == "Down for 40 s. Its messages are unknown"


def test_the_owner_of_a_promoted_copy_is_named():
    node = replace(gone(), owners=("10.0.0.2:4151",), pending=3)
    unseen = replace(gone(messages=0, seen_s=None), owners=("10.0.0.2:4151",), pending=3)

    for concern in (of_missing(node, at(40)), of_missing(unseen, at(40))):
        assert concern.level is Level.WATCH
        assert concern.text.endswith("its messages are delivered by 10.0.0.2:4151 (3 messages pending there)")


def test_a_node_is_missed_until_its_promoted_copy_has_no_pending_messages():
    book = failed_over()
    book.promoted("b:4151", 1, {"h": 1, "other": 2}, at(11))
    assert addresses(book) == ["a:4151"]

    book.promoted("b:4151", 1, {"h": 0, "other": 2}, at(12))

    assert addresses(book) == []


def test_a_dropped_promoted_copy_ends_the_failover():
    book = failed_over()

    book.promoted("b:4151", 1, {"other": 2}, at(12))

    assert addresses(book) == []


def test_a_copy_that_was_promoted_and_delivered_between_two_looks_ends_the_failover():
    book = MissingBook()
    book.promoted("b:4151", 1, {}, at(0))
    book.left(replace(gone(), identity="h"))

    book.promoted("b:4151", 1, {"h": 0}, at(12))

    assert addresses(book) == []


def test_the_channel_state_of_an_earlier_failover_says_nothing_about_this_one():
    book = MissingBook()
    book.promoted("b:4151", 1, {"h": 0}, at(0))
    book.left(replace(gone(seen_s=5), identity="h"))

    book.promoted("b:4151", 1, {"h": 0}, at(12))
    book.promoted("c:4151", 1, {"h": 0}, at(12))

    assert addresses(book) == ["a:4151"]


def test_a_node_whose_messages_were_delivered_before_it_was_missed_is_not_missed():
    book = MissingBook()
    book.promoted("b:4151", 1, {"h": 5}, at(10))
    book.promoted("b:4151", 1, {}, at(12))

    book.left(replace(gone(seen_s=9), identity="h"))

    assert addresses(book) == []


def test_a_node_that_was_back_and_left_again_is_missed_with_its_new_messages():
    book = failed_over()
    book.back(["a:4151"])
    book.promoted("b:4151", 1, {}, at(12))

    book.left(replace(gone(seen_s=20), identity="h"))

    assert addresses(book) == ["a:4151"]


def test_a_node_that_answers_without_being_listed_is_missed_with_its_own_messages():
    book = failed_over()

    book.promoted("b:4151", 1, {}, at(12))
    assert [one.address for one in book.at(at(12), answering={"a:4151"})] == ["a:4151"]
    book.seen("a:4151", at(13), messages=7, topics=1)

    assert [(one.messages, one.topics) for one in book.at(at(14))] == [(7, 1)]


def test_a_node_is_missed_while_a_second_promoted_copy_has_pending_messages():
    book = failed_over()
    book.promoted("c:4151", 1, {"h": 1}, at(11))

    book.promoted("b:4151", 1, {"h": 0}, at(12))
    assert addresses(book) == ["a:4151"]
    book.promoted("c:4151", 1, {}, at(13))
    assert addresses(book) == []


def test_a_restarted_owner_that_has_not_loaded_its_copies_has_not_delivered_them():
    book = failed_over()

    book.promoted("b:4151", 2, {}, at(12))
    assert addresses(book) == ["a:4151"]
    book.promoted("b:4151", 2, {"h": 300}, at(13))
    book.promoted("b:4151", 2, {}, at(14))
    assert addresses(book) == []


def test_an_owner_that_left_has_not_delivered_its_copies_and_hinders_no_other():
    book = failed_over()
    book.left(replace(gone("b:4151"), identity="b"))
    book.promoted("b:4151", 1, {}, at(12))
    assert addresses(book) == ["a:4151", "b:4151"]

    book.promoted("c:4151", 1, {"h": 300}, at(13))
    book.promoted("c:4151", 1, {}, at(14))

    assert addresses(book) == ["b:4151"]
