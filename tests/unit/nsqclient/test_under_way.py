"""Requests of a connection that nsqd has not answered are counted, bounded and answered in order."""

from concurrent.futures import Future

from nsqclient._requests import MAX_UNDER_WAY_BYTES, PendingCommand, Publish, UnderWay


def publish(*bodies):
    one = Publish.of("t", bodies[0], Future())
    for body in bodies[1:]:
        one.join(body, Future())
    return one


def test_messages_and_bytes_are_counted_until_they_are_answered():
    under_way = UnderWay()
    first, second = publish(b"123"), publish(b"4", b"56")
    under_way.add(first)
    under_way.add(second)
    under_way.joined(second, b"789", Future())

    assert (under_way.messages, under_way.bytes, len(under_way)) == (4, 9, 2)
    assert under_way.answered() is first
    assert (under_way.messages, under_way.bytes, under_way.first) == (3, 6, second)
    assert under_way.answered() is second
    assert (under_way.messages, under_way.bytes, len(under_way)) == (0, 0, 0)


def test_it_is_full_of_messages_or_of_bytes():
    under_way = UnderWay()
    under_way.max_messages = 2
    under_way.add(publish(b"1"))
    assert (under_way.is_full, under_way.room) == (False, (1, MAX_UNDER_WAY_BYTES - 1))
    under_way.add(publish(b"2"))
    assert (under_way.is_full, under_way.room[0]) == (True, 0)
    under_way.max_messages = 1000
    assert not under_way.is_full
    under_way.add(PendingCommand(b"x" * MAX_UNDER_WAY_BYTES, [Future()]))
    assert (under_way.is_full, under_way.room[1]) == (True, 0)


def test_answers_that_somebody_waits_for_are_those_not_done():
    under_way = UnderWay()
    both = publish(b"1", b"2")
    under_way.add(both)
    both.answers[0].cancel()

    assert under_way.answers == [both.answers[1]]


def test_what_is_given_up_is_under_way_no_more():
    under_way = UnderWay()
    requests = [publish(b"1"), PendingCommand(b"NOP", [Future()])]
    for one in requests:
        under_way.add(one)

    assert under_way.give_up() == requests
    assert (list(under_way), under_way.messages, under_way.bytes) == ([], 0, 0)
