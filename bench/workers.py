"""The processes that generate the load: they start together, count their work and are always joined."""

import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import RawArray
from typing import Final

from bench.load import LoadError

_FORK = multiprocessing.get_context("fork")
START_TIMEOUT: Final = 30.0

# A work gets its Worker, calls start(), which waits, then works and reports its total with note(messages).
Work = Callable[["Worker"], None]


class Worker:
    """The worker group as one of its processes sees it."""

    def __init__(self, crew: "WorkerGroup", number: int) -> None:
        self._crew = crew
        self._number = number

    def start(self) -> None:
        """Wait for the other workers; the work before this call (connecting, encoding) is not measured."""
        self._crew.barrier.wait(START_TIMEOUT)
        self._crew.began[self._number] = time.monotonic()
        self._crew.cpu[self._number] = -time.process_time()

    def note(self, messages: int) -> None:
        """Report the running total; this worker's work ends with the last change of it."""
        self._crew.counts[self._number] = messages
        self._crew.ended[self._number] = time.monotonic()

    def finish(self) -> None:
        self._crew.cpu[self._number] += time.process_time()

    def stop_requested(self) -> bool:
        return bool(self._crew.stop[0])


class WorkerGroup:
    """Several workers in separate processes, with counters in shared memory."""

    def __init__(self, works: list[Work]) -> None:
        size = len(works)
        self.barrier = _FORK.Barrier(size + 1)
        self.counts = RawArray("q", size)
        self.began = RawArray("d", size)
        self.ended = RawArray("d", size)
        self.cpu = RawArray("d", size)
        self.stop = RawArray("b", 1)
        self._processes: list[multiprocessing.context.ForkProcess] = [
            _FORK.Process(target=self._run, args=(work, number), daemon=True)
            for number, work in enumerate(works)
        ]

    def _run(self, work: Work, number: int) -> None:
        worker = Worker(self, number)
        try:
            work(worker)
            worker.finish()
        except KeyboardInterrupt:
            os._exit(1)
        except Exception as error:  # noqa: BLE001  # the exit code tells the parent
            if isinstance(error, (LoadError, OSError)):
                print(f"bench: a load process failed: {error}", file=sys.stderr)
            else:
                traceback.print_exc()
            self.barrier.abort()
            os._exit(1)

    def begin(self) -> None:
        """Let all workers start at the same time."""
        try:
            self.barrier.wait(START_TIMEOUT)
        except Exception as error:
            raise LoadError("a load process did not start") from error

    def total(self, numbers: range | None = None) -> int:
        self._check_alive()
        return sum(self.counts if numbers is None else [self.counts[n] for n in numbers])

    def wait(self, numbers: range, timeout: float) -> None:
        """Wait until the workers *numbers* have ended."""
        deadline = time.monotonic() + timeout
        for number in numbers:
            self._processes[number].join(max(0.0, deadline - time.monotonic()))
            if self._processes[number].exitcode != 0:
                raise LoadError("a load process did not finish")

    def wait_for(self, messages: int, numbers: range, patience: float) -> None:
        """Wait until workers *numbers* have counted *messages*; give up after *patience* without progress."""
        last, since = -1, time.monotonic()
        while (now := self.total(numbers)) < messages:
            if now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > patience:
                raise LoadError(f"{messages:,} messages expected, {now:,} came")
            time.sleep(0.005)

    def seconds(self) -> float:
        """Return the seconds from the first start to the last counted message."""
        return float(max(self.ended) - min(self.began))

    def dismiss(self) -> None:
        """Stop and join the workers that still run."""
        self.stop[0] = 1
        for process in self._processes:
            process.join(2.0)
            if process.is_alive():
                process.kill()
                process.join()

    def cpu_seconds(self) -> float:
        """Return the processor time of the workers; valid after ``dismiss``."""
        return float(sum(self.cpu))

    def _check_alive(self) -> None:
        if any(process.exitcode not in {None, 0} for process in self._processes):
            raise LoadError("a load process failed")


@contextmanager
def start_workers(works: list[Work]) -> Iterator[WorkerGroup]:
    """Yield workers whose processes are forked, connected and ready; end them afterwards."""
    crew = WorkerGroup(works)
    for process in crew._processes:
        process.start()
    try:
        yield crew
    finally:
        crew.dismiss()
