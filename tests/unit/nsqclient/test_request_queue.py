"""Requests are counted, bounded and answered in order."""

from concurrent.futures import Future

from nsqclient._requests import PendingCommand, Publish, RequestQueue


def publish(*bodies):
    one = Publish.of("t", bodies[0], Future())
    for body in bodies[1:]:
        one.join(body, Future())
    return one


def test_request_queue_counts_messages_and_bytes_until_they_are_answered():
    queue = RequestQueue()
    first, second = publish(b"123"), publish(b"4", b"56")
    queue.append(first)
    queue.append(second)

    assert (queue.messages, queue.bytes, len(queue)) == (3, 6, 2)
    assert queue.popleft() is first
    assert (queue.messages, queue.bytes, queue.first) == (2, 3, second)
    assert queue.popleft() is second
    assert (queue.messages, queue.bytes, len(queue)) == (0, 0, 0)


def test_request_queue_is_full_of_messages_or_of_bytes():
    queue = RequestQueue(2, 100)
    queue.append(publish(b"1"))
    assert (queue.is_full, queue.room) == (False, (1, 99))
    queue.append(publish(b"2"))
    assert (queue.is_full, queue.room[0]) == (True, 0)
    queue.max_messages = 1000
    assert not queue.is_full
    queue.append(PendingCommand(b"x" * 100, [Future()]))
    assert (queue.is_full, queue.room[1]) == (True, 0)


def test_request_queue_answers_are_those_that_somebody_waits_for():
    queue = RequestQueue()
    both = publish(b"1", b"2")
    queue.append(both)
    both.answers[0].cancel()

    assert queue.answers == [both.answers[1]]


def test_request_queue_clear_returns_all():
    queue = RequestQueue()
    requests = [publish(b"1"), PendingCommand(b"NOP", [Future()])]
    for one in requests:
        queue.append(one)

    assert queue.clear() == requests
    assert (list(queue), queue.messages, queue.bytes) == ([], 0, 0)
