"""The outcome of a publish for another thread: a future that is cheap until a caller waits for it."""

import asyncio
import concurrent.futures
import threading

import pytest

from nsqclient import ClosedError
from nsqclient._threads import LoopThread, Mailbox, PublishOutcome


def ended_later(outcome):
    threading.Timer(0.01, outcome.set_result, [None]).start()


STEPS = {
    "nothing": [],
    "result": [lambda one: one.set_result(None)],
    "error": [lambda one: one.set_exception(ValueError("no"))],
    "cancelled": [lambda one: one.cancel()],
    "cancelled after the result": [lambda one: one.set_result(None), lambda one: one.cancel()],
    "result while a thread waits": [ended_later, lambda one: one.result(10)],
    "result after a time-out": [lambda one: one.exception(0.01), lambda one: one.set_result(None)],
    "waited for with others": [ended_later, lambda one: concurrent.futures.wait([one], 10)],
    "waited for by a loop": [ended_later, lambda one: asyncio.run(awaited(one))],
    "another attribute": [lambda one: one.nothing],
}


async def awaited(outcome):
    await asyncio.wrap_future(outcome)


def observed(outcome, steps):
    """What the steps return or raise, the callbacks before and behind them, and the outcome at the end."""
    seen = []

    def note(step):
        try:
            returned = step(outcome)
            seen.append(returned if isinstance(returned, bool) else None)
        except (Exception, concurrent.futures.CancelledError) as error:  # noqa: BLE001 - the kinds are compared
            seen.append(type(error))

    for step in steps:
        note(step)
    outcome.add_done_callback(lambda one: seen.append(("called", one.cancelled())))
    for step in (type(outcome).done, lambda one: one.exception(0), lambda one: one.result(0)):
        note(step)
    return seen


@pytest.mark.parametrize("steps", STEPS)
def test_publish_outcome_behaves_like_future(steps):
    assert observed(PublishOutcome(), STEPS[steps]) == observed(concurrent.futures.Future(), STEPS[steps])


def test_cancelled_publish_outcome_takes_no_result():
    outcome = PublishOutcome()
    outcome.cancel()
    outcome.set_result(b"OK")  # a Future raises InvalidStateError, the connection must not

    assert outcome.cancelled()


def test_publish_outcome_wakes_waiter_that_comes_while_it_ends():
    for _ in range(300):
        outcome = PublishOutcome()
        go = threading.Barrier(2)

        def end(outcome=outcome, go=go):
            go.wait()
            outcome.set_result(b"OK")

        thread = threading.Thread(target=end)
        thread.start()
        go.wait()
        assert outcome.result(10) is None
        thread.join()


async def test_call_that_fails_keeps_none_behind_it_waiting(caplog):
    made = []
    mailbox = Mailbox(asyncio.get_running_loop())
    mailbox.post(int, "no number")
    mailbox.post(made.append, "the next")
    await asyncio.sleep(0)

    assert made == ["the next"]
    assert "failed" in caplog.text


def test_loop_that_was_stopped_can_be_stopped_again():
    thread = LoopThread("stopped twice")
    thread.stop()
    thread.stop()

    assert "stopped twice" not in {one.name for one in threading.enumerate()}


def test_call_that_is_made_while_loop_ends_is_answered():
    for _ in range(200):
        loop = LoopThread("test")
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            calls = [threads.submit(loop.call, asyncio.sleep(60)) for _ in range(4)]
            loop.stop()
            for call in calls:
                with pytest.raises(ClosedError):
                    call.result(20)
