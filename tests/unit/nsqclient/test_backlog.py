"""Publishes that wait for a connection: their order, their size, and when they are given up."""

from nsqclient._backlog import Backlog
from nsqclient._requests import Publish
from nsqclient._threads import PublishOutcome


def publish(command: bytes, count: int = 1, *, tries: int = 0, give_up_at: float = 0) -> Publish:
    one = Publish(command, [PublishOutcome()], count=count)
    one.tries, one.give_up_at = tries, give_up_at
    return one


def test_what_was_tried_often_enough_fails_with_its_last_error_when_its_time_is_up():
    backlog = Backlog(100, 1000)
    late, patient, untried = (
        publish(b"late", tries=2, give_up_at=5),
        publish(b"patient", tries=2, give_up_at=50),
        publish(b"untried", tries=1, give_up_at=5),
    )
    for one in (late, patient, untried):
        backlog.append(one)
    error = ConnectionError("down")
    late.error = error

    assert backlog.fail_expired(2, later=10)

    assert str(late.answers[0].exception()) == "down"
    assert [one.command for one in backlog] == [b"patient", b"untried"]
    assert (patient.tries, backlog.messages) == (0, 2)


def test_what_nobody_waits_for_any_more_is_dropped():
    backlog = Backlog(100, 1000)
    cancelled = publish(b"cancelled")
    cancelled.answers[0].cancel()
    backlog.append(cancelled)

    assert not backlog.fail_expired(2, later=10)
    assert len(backlog) == 0
