"""The blocking interface: from threads and scripts that have no event loop."""

import gc
import inspect
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import timedelta

import pytest

import nsqclient
from bench.ports import free_port
from nsqclient import ClosedError, Config, Retry
from nsqclient.sync import Consumer, Producer
from nsqclient.testing import MemoryNsqd
from tests.support.client import consumer_of, message_count
from tests.support.waiting import wait_until


def test_threads_share_one_producer(cluster):
    nsqd = cluster.nsqd()
    with Producer(nsqd.tcp_address, max_unconfirmed=100) as producer, ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: producer.publish("t", b"%d" % n), range(2000)))

        assert message_count(nsqd) == 2000


def test_closing_from_another_thread_ends_iteration(cluster):
    nsqd = cluster.nsqd()
    consumer = consumer_of(nsqd, kind=Consumer)
    consumer.start()
    with ThreadPoolExecutor(2) as threads:
        iterating = threads.submit(list, consumer)
        waiting = threads.submit(consumer.wait)

        consumer.close()

        assert not wait([iterating, waiting], timeout=10).not_done
    assert (iterating.result(), waiting.result()) == ([], True)


def close_at_once(make, name, callers=4):
    """Close it in several threads at the same moment; see that its thread has ended when each returns."""
    before = set(threading.enumerate())
    closed = make()
    go = threading.Barrier(callers)

    def close():
        go.wait(10)
        closed.close()
        return name in {one.name for one in set(threading.enumerate()) - before}

    with ThreadPoolExecutor(callers) as pool:
        closing = [pool.submit(close) for _ in range(callers)]
        assert [one.result(20) for one in closing] == [False] * callers


def test_consumer_closed_by_several_threads_is_closed_when_each_returns():
    for _ in range(20):

        def started():
            consumer = Consumer("t", "c", lambda _: None, lookupd_addresses=[f"127.0.0.1:{free_port()}"])
            consumer.start()
            return consumer

        close_at_once(started, "nsq consumer t/c")


def test_producer_closed_by_several_threads_has_sent_all_when_each_returns():
    with MemoryNsqd() as nsqd:
        for turn in range(20):
            sent = []

            def publishing(turn=turn, sent=sent):
                producer = Producer(nsqd.address)
                sent.append(producer.submit("t", b"%d" % turn))
                return producer

            close_at_once(publishing, "nsq producer")
            assert sent[0].result(0) is None


def test_closing_while_another_thread_runs_it_ends_both():
    for turn in range(40):
        consumer = Consumer("t", "c", lambda _: None, lookupd_addresses=[f"127.0.0.1:{free_port()}"])
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(consumer.run, signals=())
            wait_until(lambda one=consumer: one._started, "it starts")
            time.sleep(turn % 4 / 1000)  # so that it is closed while it starts, and when it runs
            consumer.close()
            with suppress(ClosedError):  # it was closed while it started
                running.result(20)


def test_reported_error_is_not_logged_again(cluster, caplog):
    nsqd = cluster.nsqd("--max-msg-size=10")
    with Producer(nsqd.tcp_address) as producer:
        refused = producer.submit("t", b"x" * 11)
        producer.flush()
        assert refused.exception() is not None
    gc.collect()

    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("name", ["Producer", "Consumer"])
def test_faces_have_the_same_methods_and_arguments(name):
    asynchronous, blocking = getattr(nsqclient, name), getattr(nsqclient.sync, name)
    names = {one for one in dir(asynchronous) if not one.startswith("_")}

    assert names - set(dir(blocking)) == set()
    for one in (*names, "__init__"):
        method, twin = getattr(asynchronous, one), getattr(blocking, one)
        if callable(method):
            wanted = set(inspect.signature(method).parameters) - {"in_threads"}  # all handlers run in threads
            assert wanted - set(inspect.signature(twin).parameters) == set(), one


def test_submit_variants_are_confirmed_and_waited_for():
    with MemoryNsqd(headers=True) as nsqd:
        with Producer(nsqd.address, config=Config(headers=True)) as producer:
            outcomes = [
                producer.submit("t", b"1", headers={"a": "b"}),
                producer.submit_many("t", [b"2", b"3"]),
                producer.submit_deferred("t", b"4", timedelta(seconds=9)),
                producer.submit("a b", b"5", headers={"a": "b"}),
            ]
            producer.flush()

            assert [outcome.done() for outcome in outcomes] == [True] * 4
            with pytest.raises(ValueError, match="topic name 'a b' is not valid"):
                outcomes.pop().result()
            assert [outcome.result() for outcome in outcomes] == [None] * 3
        with pytest.raises(ClosedError):
            producer.submit_many("t", [b"6"]).result()

        assert set(nsqd.published("t")) == {b"1", b"2", b"3", b"4"}


# Prints at how many lines SIGTERM came; at each one, run() has to end.
SIGNALLED = """
import signal
import sys
import threading
from nsqclient.sync import Consumer


def signalled(at):
    lines = 0

    def trace(frame, event, arg):
        nonlocal lines
        if event == "line" and signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            lines += 1
            if lines == at:
                signal.raise_signal(signal.SIGTERM)
        return trace

    consumer = Consumer("t", "c", print, nsqd_addresses=[sys.argv[1]])
    otherwise = threading.Timer(0.1, consumer.stop)
    otherwise.start()
    sys.settrace(trace)
    try:
        consumer.run()
    finally:
        sys.settrace(None)
        otherwise.cancel()
    return lines >= at


at = 1
while signalled(at):
    at += 1
print(at)
"""


def test_signal_at_any_line_ends_consumer():
    with MemoryNsqd() as nsqd:
        done = subprocess.run(
            [sys.executable, "-c", SIGNALLED, nsqd.address],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 30


def test_giving_up_runs_in_thread_where_it_may_block_and_exit():
    gave_up, said = {}, []

    def fail(message):
        raise ValueError(message.body)

    def give_up(message):
        gave_up[message.body] = threading.current_thread().name
        if message.body == b"exit":
            sys.exit(1)
        with pytest.raises(RuntimeError) as refused:
            consumer.close()
        said.append(str(refused.value))
        message.finish()

    once = Retry(1, lambda attempts: 0 if attempts == 1 else 600, then=give_up)
    with MemoryNsqd() as nsqd:
        for body in (b"exit", b"well"):
            nsqd.publish("t", body)
        consumer = consumer_of(nsqd, fail, kind=Consumer, config=Config(max_backoff_duration=0), retry=once)
        with consumer:
            wait_until(lambda: nsqd.finished("t", "c") == [b"well"], "the second is given up")

        assert nsqd.deferred("t", "c") == [600]
    assert gave_up == {b"exit": "t/c give up_0", b"well": "t/c give up_0"}
    assert "cannot wait for its own end" in said[0]
