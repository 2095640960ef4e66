"""Pools whose threads run from the start, so that no later work fails because a thread is refused."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event, stack_size
from typing import Final

# The address space of a thread's stack. The default is often 8 MiB, and address space may be limited.
STACK_BYTES: Final = 1 << 20


class ThreadRefused(Exception):
    """The system refuses a thread; the text is a sentence for the operator."""


def start_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Return a pool of *threads* running threads. Raises ThreadRefused.

    A pool starts its threads when work arrives. When the system refuses a thread then, the work stays in
    the queue and its caller gets an error.
    """
    pool = ThreadPoolExecutor(threads, name)
    all_run = Event()
    usual = stack_size(STACK_BYTES)
    try:
        for _ in range(threads):
            # A thread that waits takes no second job, so each job starts a thread.
            pool.submit(all_run.wait)
    except RuntimeError as error:
        pool.shutdown(wait=False, cancel_futures=True)
        raise ThreadRefused(
            f"the system refuses one of {threads} threads ({name}): raise the limit of tasks or of memory"
        ) from error
    finally:
        stack_size(usual)
        all_run.set()
    return pool
