from nsqadmin.figures.attention import Concern, Level, When
from nsqadmin.figures.troubles import TroubleBook


def concern(mark="stuck", topic="orders", channel="audit", **when):
    return Concern(Level.TROUBLE, mark, "", topic, channel, when=When(**when))


def shown(book, now_s, *concerns):
    return [(one.mark, one.level, one.since_s) for one in book.note(concerns, now_s)]


def test_what_needs_no_time_is_shown_at_once_with_its_beginning_and_goes_at_once():
    book = TroubleBook()

    assert shown(book, 100, concern()) == [("stuck", Level.TROUBLE, 100)]
    assert shown(book, 160, concern()) == [("stuck", Level.TROUBLE, 100)]
    assert shown(book, 162) == []
    assert shown(book, 164, concern()) == [("stuck", Level.TROUBLE, 164)]


def test_a_mark_that_needs_time_is_shown_when_it_has_lasted_so_long_without_a_break():
    book = TroubleBook()
    slow = concern(been_s=10, shown_s=60)

    assert shown(book, 100, slow) == []
    assert shown(book, 140, slow) == []
    assert shown(book, 150, slow) == [("stuck", Level.TROUBLE, 90)]
    assert shown(TroubleBook(), 100, concern(been_s=60, shown_s=60)) == [("stuck", Level.TROUBLE, 40)]

    book = TroubleBook()
    shown(book, 100, slow)
    shown(book, 110)
    assert shown(book, 155, slow) == []


def test_a_mark_of_two_looks_does_not_flicker():
    book = TroubleBook()
    steady = concern(stays_s=6)
    shown(book, 100, steady)

    assert shown(book, 104) == [("stuck", Level.TROUBLE, 100)]
    assert shown(book, 105, steady) == [("stuck", Level.TROUBLE, 100)]
    assert shown(book, 112) == []


def test_what_may_pass_by_itself_is_worth_a_look_first_and_trouble_later():
    book = TroubleBook()
    bare = concern("no consumers", trouble_s=65)

    assert shown(book, 100, bare) == [("no consumers", Level.WATCH, 100)]
    assert shown(book, 165, bare) == [("no consumers", Level.TROUBLE, 100)]


def test_one_topic_is_judged_again_without_the_others():
    book = TroubleBook()
    book.note([concern(), concern(topic="clicks")], 100)

    assert [one.topic for one in book.note([], 101, "orders")] == []
    assert [one.topic for one in book.note([concern(topic="clicks")], 102)] == ["clicks"]
