"""The users that Locust runs, one class for each section of a profile.

Only Locust's processes import this module, because Locust replaces the socket module.
"""

import http.client
import itertools
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, ClassVar, Final
from urllib.parse import quote

import gevent
from gevent import GreenletExit
from locust import User, task
from locust.user.task import LOCUST_STATE_STOPPING

from load.connection import BROKEN, LoadConnection
from load.daemons import ListedNsqd
from load.finding import Unreachable, connect
from load.pacing import Schedule
from load.plan import Plan
from load.profile import BrowserPlan, ConsumerPlan, PollerPlan, PublisherPlan
from load.reader import ChannelReader, drawn_from
from load.shared import Shared
from nsqclient.wire import commands
from nsqclient.wire.errors import ProtocolError
from nsqclient.wire.frames import OK

# A publisher that lost its nsqd tries the next one after this time.
RETRY_SECONDS: Final = 0.2
# A consumer without messages waits this long; then it can look up again, and Locust can stop it.
IDLE_SECONDS: Final = 0.2

_SIZE: Final = Struct(">I")


class LoadUser(User):
    abstract = True
    shared: ClassVar[Shared]

    def seen(self, row: str, name: str, times: Sequence[float], size: int = 0) -> None:
        """Add requests or messages, each with its time in milliseconds, to Locust's statistics."""
        stats = self.environment.stats
        for milliseconds in times:
            stats.log_request(row, name, milliseconds, size)

    def failed(self, row: str, name: str, milliseconds: float, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        self.shared.book.error(text)
        self.environment.stats.log_request(row, name, milliseconds, 0)
        self.environment.stats.log_error(row, name, error)


class PacedUser(LoadUser):
    """Sends requests when they are due; a late one is sent immediately and measured from its due time."""

    abstract = True
    rate: ClassVar[float]  # requests a second of this user; 0 means as soon as the last was answered

    def on_start(self) -> None:
        self.prepare()
        self.began, self.began_ns = both_clocks()
        self.pace = Schedule(self.rate, self.shared.profile.stages, random.random())
        self.due = self.pace.next() if self.rate else 0.0
        self.retry = False
        self.mean_ms = 0.0
        # Locust runs the task before the first wait, so the first request would come before it is due.
        gevent.sleep(self.wait_time())

    def prepare(self) -> None:
        """Called before the first request is due."""

    def wait_time(self) -> float:
        if self.retry:
            self.retry = False
            return RETRY_SECONDS
        return max(0.0, self.due - (time.monotonic() - self.began)) if self.rate else 0.0

    def due_now(self) -> float:
        """Return when the current request was due, in seconds since the start."""
        return self.due if self.rate else time.monotonic() - self.began

    def answered(self, name: str, due: float, sent: float) -> float:
        """Book the time of a request; return the milliseconds since it was due."""
        now = time.monotonic()
        service_ms = (now - sent) * 1000
        book = self.shared.book
        book.latency(f"{name} answered").record(service_ms)
        if not self.rate:
            self.mean_ms += (service_ms - self.mean_ms) / 50 if self.mean_ms else service_ms
            book.latency(name).record_closed_loop(service_ms, self.mean_ms)
            return service_ms
        self.due = self.pace.next()
        milliseconds = max(0.0, (now - self.began - due) * 1000)
        book.latency(name).record(milliseconds)
        return milliseconds


class PublishingUser(PacedUser):
    """Keeps one connection to one nsqd, and takes the next nsqd when the connection breaks."""

    abstract = True
    plan: ClassVar[PublisherPlan]

    def prepare(self) -> None:
        self.publisher = self.shared.next_publisher()
        self.name = self.publisher.hex()
        self.numbers: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        self.topics = self.shared.profile.topics.topics()
        self.turn = random.randrange(1 << 16)
        self.sending = self.ending = False
        self.tcp: LoadConnection | None = None
        self.http: http.client.HTTPConnection | None = None
        self.connect()

    def on_stop(self) -> None:
        self.drop()

    def stop(self, force: bool = False) -> bool:
        """Wait for the answer to the current request and begin no other."""
        self.ending = True
        if self.sending and not force:
            self._state = LOCUST_STATE_STOPPING
            return False
        return bool(super().stop(force))

    @task
    def publish(self) -> None:
        if self.ending:
            return
        if not (self.tcp or self.http) and not self.connect():
            self.retry = True
            return
        plan, due = self.plan, self.due_now()
        topic = random.choice(self.topics)
        delay_ms = drawn_from(plan.delay_ms) if plan.kind == "DPUB" else 0
        due_ns = self.began_ns + int(due * 1e9) + delay_ms * 1_000_000
        numbers = list(itertools.islice(self.numbers[topic], plan.messages))
        body = self.shared.marker.body
        bodies = [body(self.publisher, number, due_ns, drawn_from(plan.size)) for number in numbers]
        sent = time.monotonic()
        self.sending = True
        try:
            self.send(topic, bodies, delay_ms)
        except ProtocolError as error:
            self.shared.book.refused(topic, self.name, numbers)
            self.gave_up(topic, sent, error)
        except (*BROKEN, http.client.HTTPException) as error:
            # nsqd may have stored the messages before the connection broke, so they may or may not arrive.
            self.shared.book.unsure(topic, self.name, numbers)
            self.gave_up(topic, sent, error)
        except GreenletExit:
            self.shared.book.unsure(topic, self.name, numbers)
            raise
        else:
            self.shared.book.acked(topic, self.name, numbers)
            milliseconds = self.answered("publish", due, sent)
            self.seen(plan.kind, topic, (milliseconds,), sum(map(len, bodies)))
        finally:
            self.sending = False

    def gave_up(self, topic: str, sent: float, error: Exception) -> None:
        self.drop()
        self.failed(self.plan.kind, topic, (time.monotonic() - sent) * 1000, error)
        self.retry = True
        if self.rate:
            self.due = self.pace.next()

    def send(self, topic: str, bodies: list[bytes], delay_ms: int) -> None:
        kind = self.plan.kind
        if self.http is not None:
            self.post(self.http, topic, bodies)
            return
        if kind == "MPUB":
            command = commands.mpub(topic, bodies)
        elif kind == "DPUB":
            command = commands.dpub(topic, bodies[0], delay_ms)
        else:
            command = commands.pub(topic, bodies[0])
        if self.tcp is None:
            raise RuntimeError("send is called when connected")
        if (answer := self.tcp.request(command)) != OK:
            raise ProtocolError("E_UNEXPECTED", f"{kind} was answered with {answer!r}", fatal=True)

    def post(self, http: http.client.HTTPConnection, topic: str, bodies: list[bytes]) -> None:
        path, body = f"/pub?topic={quote(topic, safe='')}", bodies[0]
        if self.plan.kind == "HTTP-MPUB":
            path = f"/mpub?topic={quote(topic, safe='')}&binary=true"
            body = _SIZE.pack(len(bodies)) + b"".join(_SIZE.pack(len(one)) + one for one in bodies)
        http.request("POST", path, body, self.shared.access.headers(encrypted=False))
        response = http.getresponse()
        answer = response.read()
        if response.status != 200:
            text = answer[:200].decode(errors="replace").strip()
            raise ProtocolError(f"HTTP {response.status}", text, fatal=True)

    def connect(self) -> bool:
        began = time.perf_counter()
        try:
            nsqd = self.next_nsqd()
            if self.plan.kind.startswith("HTTP"):
                self.http = connect(nsqd.http)
                self.http.connect()
            else:
                self.tcp = LoadConnection(nsqd.tcp, self.shared.access)
        except (*BROKEN, ValueError) as error:
            self.http = None
            self.failed("CONNECT", "nsqd", (time.perf_counter() - began) * 1000, error)
            return False
        self.seen("CONNECT", "nsqd", ((time.perf_counter() - began) * 1000,))
        return True

    def next_nsqd(self) -> ListedNsqd:
        found = self.shared.asker.all_nsqd(self.shared.plan.lookupds)
        if not found:
            raise Unreachable(f"nsqlookupd at {', '.join(self.shared.plan.lookupds)} knows no nsqd")
        self.turn += 1
        return found[self.turn % len(found)]

    def drop(self) -> None:
        for connection in (self.tcp, self.http):
            if connection is not None:
                connection.close()
        self.tcp = self.http = None


class ConsumingUser(LoadUser):
    """Reads its channels from every nsqd that has them."""

    abstract = True
    plan: ClassVar[ConsumerPlan]
    pairs: ClassVar[list[tuple[str, str]]]

    def on_start(self) -> None:
        shared = self.shared
        self.reader = ChannelReader(
            shared.plan.lookupds, self.pairs, shared.marker, shared.book, shared.access, self.plan
        )

    def on_stop(self) -> None:
        self.reader.close()

    def wait_time(self) -> float:
        return 0

    @task
    def read(self) -> None:
        for outcome in self.reader.turn(IDLE_SECONDS):
            name = "nsqlookupd" if outcome.what == "LOOKUP" else self.shared.profile.topics.name
            if outcome.error is not None:
                self.failed(outcome.what, name, sum(outcome.milliseconds), outcome.error)
                continue
            self.seen(
                outcome.what, name, outcome.milliseconds, outcome.size // (len(outcome.milliseconds) or 1)
            )
            if outcome.what == "DELIVERY":
                delivery = self.shared.book.latency("delivery")
                for milliseconds in outcome.milliseconds:
                    delivery.record(milliseconds)
            elif outcome.what == "LOOKUP":
                self.shared.book.latency("lookup").record(outcome.milliseconds[0])


class AskingUser(PacedUser):
    """Sends HTTP requests at a pace; any status but 200 is an error, except 404 for a lookup."""

    abstract = True
    what: ClassVar[str]

    def where(self) -> tuple[str, str]:
        """Return address and path of the next request."""
        raise NotImplementedError

    @task
    def ask(self) -> None:
        address, path = self.where()
        due, sent = self.due_now(), time.monotonic()
        name = path.partition("?")[0]
        try:
            status, body = self.shared.asker.ask(address, path)
            if status not in {200, 404 if path.startswith("/lookup?") else 200}:
                raise Unreachable(f"{address} answered {path} with {status}")
        except Unreachable as error:
            self.due = self.pace.next()
            self.failed(self.what.upper(), name, (time.monotonic() - sent) * 1000, error)
        else:
            self.seen(self.what.upper(), name, (self.answered(self.what, due, sent),), len(body))


class PollingUser(AskingUser):
    """Looks up topics at nsqlookupd, as the consumers of a large installation do."""

    abstract = True
    what = "lookup"
    plan: ClassVar[PollerPlan]

    def where(self) -> tuple[str, str]:
        path = f"/{self.plan.ask}"
        if self.plan.ask == "lookup":
            path += f"?topic={quote(random.choice(self.shared.profile.topics.topics()), safe='')}"
        return random.choice(self.shared.plan.lookupds), path


class BrowsingUser(AskingUser):
    """Requests random pages of nsqadmin."""

    abstract = True
    what = "page"
    plan: ClassVar[BrowserPlan]

    def where(self) -> tuple[str, str]:
        topic, channel = random.choice(self.shared.profile.topics.pairs())
        topic = quote(topic, safe="")
        pages = ("/", "/nodes", "/counter", f"/topics/{topic}", f"/topics/{topic}/{channel}", "/api/topics")
        return random.choice(self.shared.plan.admins), random.choice(pages)


def both_clocks() -> tuple[float, int]:
    """Return the same moment on both clocks; on a busy machine much time may pass between two lines."""
    while True:
        before, now_ns, after = time.monotonic(), time.time_ns(), time.monotonic()
        if after - before < 0.0002:
            return after, now_ns


def make_users(text: str) -> dict[str, type[User]]:
    """Return the user classes for the plan in *text*, which a locustfile adds to its own names."""
    plan = Plan.read(text)
    shared = Shared(plan)
    profile = plan.profile
    users: dict[str, type[User]] = {}

    def add(name: str, kind: type[User], count: int, **attributes: Any) -> None:
        name = name if name not in users else f"{name}_{len(users)}"
        users[name] = type(
            name,
            (kind,),
            {"abstract": False, "fixed_count": count, "shared": shared, "plan": None, **attributes},
        )

    for publisher in profile.publishers:
        rate = publisher.rate / publisher.users / publisher.messages
        name = f"Publisher_{publisher.kind.replace('-', '_')}"
        add(name, PublishingUser, publisher.users, plan=publisher, rate=rate)
    pairs = profile.topics.pairs()
    for section, consumer in enumerate(profile.consumers):
        for at in range(consumer.users):
            own = [pairs[at % len(pairs)]] if consumer.users >= len(pairs) else pairs[at :: consumer.users]
            add(f"Consumer_{section}_{at}", ConsumingUser, 1, plan=consumer, pairs=own)
    for poller in profile.pollers:
        add(f"Poller_{poller.ask}", PollingUser, poller.users, plan=poller, rate=poller.rate / poller.users)
    for browser in profile.browsers if plan.admins else ():
        add("Browser", BrowsingUser, browser.users, plan=browser, rate=browser.rate / browser.users)
    return users
