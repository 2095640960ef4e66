"""Publishers that wait for acknowledgements of replicas, and when they are answered."""

import pytest

from nsqd.replication.sender import AckQueue, PendingAck


def waiting(need, possible, reason="too few"):
    results = []
    pending = PendingAck(need, possible, reason)
    pending.add(results.append)
    return pending, results


def queues(count, pending, *, durable=False):
    found = [AckQueue() for _ in range(count)]
    for queue in found:
        queue.add(100, pending, durable=durable)
    return found


def test_publisher_is_answered_when_the_replica_has_written_everything():
    pending, results = waiting(1, 1)
    (queue,) = queues(1, pending)

    queue.reached(99, 99)
    assert results == []
    queue.reached(100, 0)

    assert results == [""]


def test_publisher_waits_for_the_fsync_if_it_is_to_be_durable():
    pending, results = waiting(1, 1)
    (queue,) = queues(1, pending, durable=True)

    queue.reached(200, 99)
    assert results == []
    queue.reached(200, 100)

    assert results == [""]


@pytest.mark.parametrize("reason", ["", "too few"])
def test_publisher_waits_for_as_many_replicas_as_are_wanted(reason):
    pending, results = waiting(2, 3, reason)
    one, two, three = queues(3, pending)

    one.reached(100, 0)
    two.lose()
    assert results == []
    three.reached(100, 0)

    assert results == [""]


def test_lost_replica_refuses_the_publish_when_too_few_are_left():
    pending, results = waiting(2, 2)
    one, two = queues(2, pending)

    one.lose()
    two.reached(100, 0)

    assert results == ["too few"]


def test_accepting_publisher_waits_for_the_replicas_that_are_left():
    pending, results = waiting(2, 2, "")
    one, two = queues(2, pending)

    one.lose()
    assert results == []
    two.reached(100, 0)

    assert results == [""]


def test_accepting_publisher_is_answered_when_no_replica_is_left():
    pending, results = waiting(2, 2, "")
    one, two = queues(2, pending)

    one.lose()
    two.lose()

    assert results == [""]


@pytest.mark.parametrize(("reason", "after"), [("", [""]), ("too few", ["too few"])])
def test_acknowledgement_of_a_replica_that_is_lost_before_the_ok_does_not_count(reason, after):
    pending, results = waiting(2, 2, reason)
    one, two = queues(2, pending)

    one.reached(100, 0)
    one.lose()
    assert results == (["too few"] if reason else [])
    two.reached(100, 0)

    assert results == after


def test_publisher_is_answered_once():
    pending, results = waiting(1, 2)
    one, two = queues(2, pending)

    one.reached(100, 100)
    two.reached(100, 100)
    one.lose()
    two.lose()

    assert results == [""]
    assert not len(two)


def test_callback_that_comes_after_the_answer_gets_it():
    pending = PendingAck(2, 1, "too few")
    results = []

    pending.add(results.append)

    assert results == ["too few"]
    assert not pending.is_open
