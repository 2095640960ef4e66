"""What the users of one process share: the plan, the book, and its reports to the master."""

import itertools
import os
import time
from pathlib import Path
from typing import Any, Final

import gevent
from locust import events
from locust.runners import MasterRunner, WorkerRunner

from load.access import read_access
from load.book import Book
from load.finding import ClusterAsker
from load.journal import TallyJournal
from load.keeper import Keeper
from load.marks import Marker, publisher_id
from load.plan import Plan

MESSAGE: Final = "nsq-load"
TELL_SECONDS: Final = 1.0
# How long the master waits for the workers' last deltas.
LAST_WORDS_SECONDS: Final = 15.0


class Crew:
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
        self._keeper: Keeper | None = None
        self._telling: Any = None
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
        self._keeper = Keeper(journal, folder / "curve.jsonl")
        environment.runner.register_message(MESSAGE, self._hear)

    def _hear(self, msg: Any, **_: Any) -> None:
        if self._keeper is not None:
            self._keeper.take(msg.data)

    def _test_starts(self, environment: Any, **_: Any) -> None:
        runner = environment.runner
        if not isinstance(runner, MasterRunner):
            self._telling = gevent.spawn(self._tell_on, runner)
        if self._keeper is not None:
            self._keeper.begin(time.time())
            gevent.spawn(self._conduct, runner, self._keeper)

    def _test_stops(self, environment: Any, **_: Any) -> None:
        """Send the last delta: all users have ended, so the book is complete."""
        if self._telling is not None:
            self._telling.kill()
            self._telling = None
            environment.runner.send_message(MESSAGE, self.book.delta(last=True))
        if isinstance(environment.runner, WorkerRunner):
            # Locust's master forgets a worker that has stopped, and does not ask it to quit.
            gevent.spawn_later(1, environment.runner.quit)

    def _tell_on(self, runner: Any) -> None:
        while True:
            gevent.sleep(TELL_SECONDS)
            runner.send_message(MESSAGE, self.book.delta())

    def _conduct(self, runner: Any, keeper: Keeper) -> None:
        """Let the load run as long as the profile says, then end it and wait for the workers' last deltas."""
        began = time.monotonic()
        while time.monotonic() - began < self.profile.seconds and runner.state not in {"stopping", "stopped"}:
            gevent.sleep(0.5)
            keeper.sample(time.time(), runner.user_count)
        keeper.load_ended(time.time())
        runner.stop()
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        while keeper.journal.tally.silent and time.monotonic() < deadline:
            gevent.sleep(0.1)
        keeper.end(time.time())
        runner.quit()
        if self.environment.web_ui is not None:
            self.environment.web_ui.stop()
