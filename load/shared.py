"""The shared state of the users of one process: the plan, the book, and its reports to the master."""

import itertools
import os
import time
from pathlib import Path
from typing import Any, Final

import gevent
from locust import events
from locust.runners import MasterRunner, WorkerRunner

from load.book import Book
from load.connection import read_access
from load.finding import ClusterAsker
from load.journal import TallyJournal
from load.marks import Marker, publisher_id
from load.plan import Plan
from load.recorder import RunRecorder

MESSAGE: Final = "nsq-load"
REPORT_SECONDS: Final = 1.0
# How long the master waits for the workers' last deltas.
LAST_DELTAS_SECONDS: Final = 15.0


class Shared:
    """Exists once in each process; the master, or a process without workers, also keeps the tally."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.profile = plan.profile
        self.access = read_access(plan.tls, plan.auth_secret_file, allow_cleartext=plan.auth_allow_cleartext)
        self.asker = ClusterAsker(self.access)
        self.marker = Marker(plan.run_bytes)
        # Random, because processes on several hosts may have the same pid.
        self.worker = os.urandom(5)
        self.book = Book(self.worker.hex())
        self.environment: Any = None
        self._numbers = itertools.count(1)
        self._recorder: RunRecorder | None = None
        self._reporting: Any = None
        events.init.add_listener(self._begin)
        events.test_start.add_listener(self._test_starts)
        events.test_stop.add_listener(self._test_stops)

    def next_publisher(self) -> bytes:
        return publisher_id(self.worker, next(self._numbers))

    def _begin(self, environment: Any, **_: Any) -> None:
        self.environment = environment
        environment.stop_timeout = 10
        if isinstance(environment.runner, WorkerRunner):
            return
        folder = Path(self.plan.folder)
        journal = TallyJournal(folder / "tally.jsonl", self.profile.channels)
        self._recorder = RunRecorder(journal, folder / "curve.jsonl")
        environment.runner.register_message(MESSAGE, self._receive)

    def _receive(self, msg: Any, **_: Any) -> None:
        if self._recorder is not None:
            self._recorder.take(msg.data)

    def _test_starts(self, environment: Any, **_: Any) -> None:
        runner = environment.runner
        if not isinstance(runner, MasterRunner):
            self._reporting = gevent.spawn(self._report_deltas, runner)
        if self._recorder is not None:
            self._recorder.begin(time.time())
            gevent.spawn(self._run_load, runner, self._recorder)

    def _test_stops(self, environment: Any, **_: Any) -> None:
        """Send the last delta: all users have ended, so the book is complete."""
        if self._reporting is not None:
            self._reporting.kill()
            self._reporting = None
            environment.runner.send_message(MESSAGE, self.book.delta(last=True))
        if isinstance(environment.runner, WorkerRunner):
            # Locust's master forgets a worker that has stopped, and does not ask it to quit.
            gevent.spawn_later(1, environment.runner.quit)

    def _report_deltas(self, runner: Any) -> None:
        while True:
            gevent.sleep(REPORT_SECONDS)
            runner.send_message(MESSAGE, self.book.delta())

    def _run_load(self, runner: Any, recorder: RunRecorder) -> None:
        """Let the load run as long as the profile says, then end it and wait for the workers' last deltas."""
        began = time.monotonic()
        while time.monotonic() - began < self.profile.seconds and runner.state not in {"stopping", "stopped"}:
            gevent.sleep(0.5)
            recorder.sample(time.time(), runner.user_count)
        recorder.load_ended(time.time())
        runner.stop()
        deadline = time.monotonic() + LAST_DELTAS_SECONDS
        while recorder.journal.tally.unreported and time.monotonic() < deadline:
            gevent.sleep(0.1)
        recorder.end(time.time())
        runner.quit()
        if self.environment.web_ui is not None:
            self.environment.web_ui.stop()
