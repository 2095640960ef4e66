"""The outcome of a publish for another thread: a future that is cheap until somebody waits for it."""

import asyncio
import concurrent.futures
import threading

import pytest

from nsqclient import ClosedError
from nsqclient._threads import LoopThread, Mailbox, PublishOutcome


@pytest.fixture
def outcome():
    return PublishOutcome()


def test_outcome_is_open_until_it_has_result(outcome):
    assert not outcome.done()

    outcome.set_result(b"OK")

    assert outcome.done()
    assert outcome.result() is None
    assert outcome.exception() is None


def test_outcome_that_failed_raises_its_error(outcome):
    outcome.set_exception(ValueError("no"))

    assert outcome.done()
    with pytest.raises(ValueError, match="no"):
        outcome.result()
    assert isinstance(outcome.exception(), ValueError)


@pytest.mark.parametrize("prepared", [True, False])
def test_thread_that_waits_is_woken(outcome, prepared):
    if prepared:
        outcome.prepare_to_wait()
    threading.Timer(0.01, outcome.set_result, [b"OK"]).start()

    assert outcome.result(10) is None


def test_time_out_is_one(outcome):
    with pytest.raises(TimeoutError):
        outcome.result(0.01)


def test_one_that_was_cancelled_takes_no_result(outcome):
    assert outcome.cancel()

    outcome.set_result(b"OK")

    assert outcome.cancelled()
    with pytest.raises(concurrent.futures.CancelledError):
        outcome.result()


def test_one_that_has_ended_is_not_cancelled(outcome):
    outcome.set_result(b"OK")

    assert not outcome.cancel()
    assert outcome.result() is None


@pytest.mark.parametrize("ended_first", [True, False])
def test_callbacks_are_called_once(outcome, ended_first):
    called = []
    if ended_first:
        outcome.set_result(b"OK")
    outcome.add_done_callback(called.append)
    if not ended_first:
        assert called == []
        outcome.set_result(b"OK")

    assert called == [outcome]


def test_it_can_be_waited_for_with_others(outcome):
    other = PublishOutcome()
    threading.Timer(0.01, outcome.set_result, [b"OK"]).start()

    done, waiting = concurrent.futures.wait([outcome, other], timeout=5, return_when="FIRST_COMPLETED")

    assert (done, waiting) == ({outcome}, {other})


async def test_event_loop_can_wait_for_it(outcome):
    threading.Timer(0.01, outcome.set_result, [b"OK"]).start()

    async with asyncio.timeout(10):
        await asyncio.wrap_future(outcome)


def test_whoever_begins_to_wait_while_it_ends_is_not_forgotten():
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


def test_it_has_no_other_attributes(outcome):
    with pytest.raises(AttributeError):
        outcome.nothing  # noqa: B018 - the access itself is tested


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
