import threading

import pytest

from nsqcore.process.threads import ThreadRefused, start_pool


def test_pool_runs_all_its_threads_from_start(monkeypatch):
    pool = start_pool(3, "test")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    together = threading.Barrier(3)

    done = [pool.submit(together.wait, 10) for _ in range(3)]

    assert sorted(one.result() for one in done) == [0, 1, 2]
    pool.shutdown()


def test_refused_thread_ends_the_others_and_names_limit(monkeypatch):
    start = threading.Thread.start
    started = []

    def start_two(thread):
        if len(started) == 2:
            refuse(thread)
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_two)

    with pytest.raises(ThreadRefused, match=r"one of 3 threads \(test\): raise the limit of tasks"):
        start_pool(3, "test")

    for thread in started:
        thread.join(10)
    assert not any(thread.is_alive() for thread in started)


def refuse(_thread):
    raise RuntimeError("can't start new thread")
