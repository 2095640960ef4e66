"""Load on an NSQ cluster: publishers of single messages and of batches, and consumers that find them.

    python -m locust -f tests/load/locustfile.py --lookupd-http-address=127.0.0.1:4161 --headless -u 8 -t 1m

Runs in a process of its own: locust replaces the socket module, which no daemon and no test survives.
"""

import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gevent import GreenletExit
from locust import User, events, task

from nsqclient.wire import commands
from nsqclient.wire.errors import ProtocolError
from nsqclient.wire.frames import OK
from tests.load.connection import Connection
from tests.load.discovery import all_nsqd
from tests.load.journal import Journal
from tests.load.reader import BROKEN, Reader

# A publisher whose nsqd is gone tries the next one after this.
RETRY_SECONDS = 0.2

# A consumer with nothing to read looks up again and lets locust stop it.
IDLE_SECONDS = 0.2

user_numbers = itertools.count(1)


@events.init_command_line_parser.add_listener
def add_options(parser: Any) -> None:
    parser.add_argument("--lookupd-http-address", default="127.0.0.1:4161", help="where nsqd are found")
    parser.add_argument("--topic", default="load")
    parser.add_argument("--channel", default="load")
    parser.add_argument("--message-size", type=int, default=200, help="bytes of each message")
    parser.add_argument("--batch", type=int, default=100, help="messages of an MPUB")
    parser.add_argument("--pause", type=float, default=0, help="seconds a publisher rests after a request")
    parser.add_argument("--journal", default="", help="folder for the ids (default: a new temporary one)")


@events.init.add_listener
def make_journal(environment: Any, **_: Any) -> None:
    options = environment.parsed_options
    options.journal = options.journal or tempfile.mkdtemp(prefix="nsq-load-")


class NsqUser(User):
    abstract = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.options = self.environment.parsed_options
        self.number = next(user_numbers)
        self.writer = f"{os.getpid()}-{self.number}"
        self.folder = Path(self.options.journal)

    def report(self, kind: str, milliseconds: float, size: int = 0, error: Exception | None = None) -> None:
        self.environment.events.request.fire(
            request_type=kind,
            name=self.options.topic,
            response_time=milliseconds,
            response_length=size,
            exception=error,
            context={},
        )


class Publisher(NsqUser):
    """Keeps one connection to one nsqd, and takes the next nsqd when that breaks."""

    abstract = True

    def on_start(self) -> None:
        self.acked = Journal(self.folder, "acked", self.writer)
        self.unsure = Journal(self.folder, "unsure", self.writer)
        self.ids = self.unique_ids()
        self.turn = self.number
        self.connection: Connection | None = None

    def on_stop(self) -> None:
        self.drop()
        self.acked.close()
        self.unsure.close()

    def wait_time(self) -> float:
        return float(self.options.pause) if self.connection else RETRY_SECONDS

    def unique_ids(self) -> Iterator[bytes]:
        for n in itertools.count():
            yield b"%s-%d" % (self.writer.encode(), n)

    def body(self, message_id: bytes) -> bytes:
        return (message_id + b" ").ljust(self.options.message_size, b".")

    def connect(self) -> bool:
        began = time.perf_counter()
        try:
            found = all_nsqd(self.options.lookupd_http_address)
            if not found:
                raise ConnectionError(f"nsqlookupd at {self.options.lookupd_http_address} knows no nsqd")
            self.turn += 1
            self.connection = Connection(found[self.turn % len(found)])
        except (*BROKEN, ValueError) as error:
            self.report("CONNECT", milliseconds_since(began), error=error)
            return False
        self.report("CONNECT", milliseconds_since(began))
        return True

    def publish(self, kind: str, command: bytes, ids: list[bytes]) -> None:
        if self.connection is None:
            raise RuntimeError("publish is called when connected")
        began = time.perf_counter()
        try:
            answer = self.connection.request(command)
            if answer != OK:
                raise ProtocolError("E_UNEXPECTED", f"{kind} was answered with {answer!r}", fatal=True)
        except BROKEN as error:
            # It may have been written before the connection broke: it may come, or may not.
            self.unsure.note(ids)
            self.drop()
            self.report(kind, milliseconds_since(began), error=error)
            return
        except GreenletExit:
            self.unsure.note(ids)
            raise
        self.report(kind, milliseconds_since(began), len(command))
        self.acked.note(ids)

    def drop(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class SinglePublisher(Publisher):
    weight = 2

    @task
    def pub(self) -> None:
        if self.connection or self.connect():
            message_id = next(self.ids)
            self.publish("PUB", commands.pub(self.options.topic, self.body(message_id)), [message_id])


class BatchPublisher(Publisher):
    weight = 1

    @task
    def mpub(self) -> None:
        if self.connection or self.connect():
            ids = list(itertools.islice(self.ids, self.options.batch))
            command = commands.mpub(self.options.topic, [self.body(one) for one in ids])
            self.publish("MPUB", command, ids)


class Consumer(NsqUser):
    """Reads the channel from every nsqd; there are always two, however many publishers."""

    fixed_count = 2

    def on_start(self) -> None:
        self.journal = Journal(self.folder, "received", self.writer)
        self.reader = Reader(
            self.options.lookupd_http_address, self.options.topic, self.options.channel, self.journal
        )

    def on_stop(self) -> None:
        self.reader.close()
        self.journal.close()

    def wait_time(self) -> float:
        return 0

    @task
    def read(self) -> None:
        for outcome in self.reader.turn(IDLE_SECONDS):
            self.report(outcome.what, outcome.milliseconds, outcome.size, outcome.error)


def milliseconds_since(began: float) -> float:
    return (time.perf_counter() - began) * 1000
