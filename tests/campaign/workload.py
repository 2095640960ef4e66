"""Random work for a simulated node, with a model of its promises."""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import repeat
from typing import Any, Final, NoReturn

from nsqclient.wire.frames import FRAME_ERROR
from nsqd.engine.settings import SettingsOf
from nsqd.storage.metadata import BadMetadata
from tests.campaign.client import Client, dpub, mpub, mpub_ext, pub, pub_ext
from tests.campaign.consumers import Consumers
from tests.campaign.headed import HEADED, UNIQUE, expected
from tests.campaign.ledger import Deed, Ledger
from tests.campaign.model import NEVER, After, Fact, Model
from tests.campaign.node import KEEPS, Node
from tests.campaign.places import CHANNELS, MILLISECOND, TOPICS
from tests.campaign.profiles import Profile
from tests.campaign.refusals import MARK, DedupBudget
from tests.campaign.requests import Requests
from tests.campaign.ruled import MORE, Rules
from tests.campaign.seeks import Seeks
from tests.support.simulated_disk import SimulatedDisk
from tests.support.simulated_loop import SECOND, SimulatedLoop

# How often a start is tried that a fault prevents.
STARTS: Final = 50
# Seconds the node may take to notice that a fault is over.
RECOVERY_S: Final = 70
# Rounds of waiting until all deferred messages have come, which are deferred for at most 50 minutes.
DRAIN_ROUND_S: Final = 20
DRAIN_ROUNDS: Final = 160


class Broken(Exception):
    """The running node broke a promise; the text says which."""


class Workload:
    """Plays steps drawn from *rng* on a node; its requests and their answers go into the model."""

    def __init__(
        self,
        disk: SimulatedDisk,
        loop: SimulatedLoop,
        rng: random.Random,
        profile: Profile,
        *,
        strict: bool,
        model: Model | None = None,
        ruled: bool = False,
    ) -> None:
        """With *ruled* policies apply."""
        self.disk = disk
        self.loop = loop
        self.rng = rng
        self.profile = profile
        self.strict = strict
        self.model = model or Model()
        self.node: Node
        self.trace: list[str] = []
        # Counts of the actions so far.
        self.done: Ledger = Counter()
        # Times at which positions were reached: (position, engine's time, wall clock time).
        self.times: list[tuple[int, int, int]] = []
        # Calls may fail: an error then breaks no promise, but an answer still is a promise.
        self.faulty = False
        self.bodies_by_id: dict[tuple[str, bytes], bytes] = {}
        self._publisher: Client | None = None
        self._replies: deque[Callable[[bool, bytes], None]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self.was_faulty = False
        self._count = len(self.model.messages)
        # When messages were stored in this life of the node, by the wall clock.
        self.stored_ns: dict[bytes, int] = {}
        self.rules = Rules(self, ruled=ruled)
        self.requests = Requests(self)
        self.seeks = Seeks(self)
        self.consumers = Consumers(self)
        self._actions: dict[str, Callable[[], Awaitable[None]]] = {
            action.__name__: action
            for action in (
                self.publish,
                self.requests.administrate,
                self.requests.recreate,
                self.requests.recreate_channel,
                self.seeks.seek,
                self.seeks.handle,
                self.repeat,
                self.send_back,
                self.fill_disk,
                self.consumers.subscribe,
                self.consumers.unsubscribe,
                self.consumers.answer,
                self.wait,
                self.restart,
            )
        }
        self.requests.watch_compactions()

    def break_off(self, text: str) -> NoReturn:
        raise Broken(text)

    @property
    def position(self) -> int:
        return len(self.disk.steps)

    @property
    def settings_of(self) -> SettingsOf:
        """The function that returns the settings of policies."""
        return self.rules.settings_of

    async def start(self) -> None:
        """Start a node on the disk."""
        self.node = Node(
            self.disk,
            self.loop,
            strict=self.strict,
            settings_of=self.settings_of,
            watermark=MARK if self.rules.ruled else "",
        )
        self.node.on_synced = self.model.synced
        self.node.on_sync_failed = self.model.sync_failed
        self.seeks.placing.clear()
        self.node.on_placed = lambda topic, channel: self.seeks.placing[topic, channel]()
        await self.node.start()
        self.rules.started()
        self._note_used()

    async def start_at_last(self) -> None:
        """Start the node, again if it ends with an error, as a supervisor does."""
        for attempt in range(STARTS):
            try:
                await self.start()
            except (OSError, BadMetadata):
                await self.node.abandon()
                if attempt + 1 == STARTS:
                    raise
            else:
                self._forget_unpromised()
                return

    def _forget_unpromised(self) -> None:
        """Forget topics and channels that are gone and were not promised, because calls failed."""
        for topic in self.model.living() if self.faulty else []:
            here = self.node.broker.topics.get(topic.name)
            gone = [topic] if here is None else [one for one in topic.living if one.name not in here.channels]
            for owner in gone:
                if not owner.must_exist(self.position, After.KILL):
                    self.model.remove(owner, self.model.fact(self.position))

    async def stop(self) -> None:
        """Stop the node cleanly."""
        self.note("stop")
        failed = self.disk.failed
        await self.node.stop()
        self.rules.look()
        if self.disk.open_paths:
            raise Broken(f"descriptors are left open: {self.disk.open_paths}")
        if self.faulty:
            # The last checkpoint may have failed.
            self.consumers.finished.clear()
            self.consumers.unsure_until = self.position
        self.requests.notice_deleted()
        self._settle()
        if self.disk.failed == failed:
            self.model.stopped(self.position)
        else:
            self.model.sync_failed()
        self._forget_clients()

    async def play(self) -> None:
        """Do the work that the profile describes."""
        named = {**self.profile.weights, **(MORE if self.rules.ruled else {})}
        actions = [(self._actions[name], weight) for name, weight in named.items()]
        weights = [weight for _, weight in actions]
        for _ in range(self.profile.steps):
            action, _ = self.rng.choices(actions, weights)[0]
            await action()
            await self.turns()

    async def turns(self) -> None:
        """Let pending requests be done; answers that wait for a thread come later."""
        for _ in range(3):
            await asyncio.sleep(0)
        self.requests.notice_deleted()
        self._note_used()
        self.rules.look()
        self.times.append((self.position, self.loop.clock.monotonic_ns, self.loop.clock.wall_ns))
        if self.loop.failures:
            raise Broken(self.loop.failures[0])
        if (ended := self.node.ended()) is not None:
            raise Broken(f"a task of the node ended: {ended!r}")

    def note(self, text: str) -> None:
        """Add a request to the trace that a violation shows."""
        self.trace.append(f"{self.position}: {text}")

    def _note_used(self) -> None:
        self.model.used.append((self.position, self.node.used_sequences()))

    # --- publishing ---

    def next_number(self) -> int:
        """Return the number of the next message."""
        self._count += 1
        return self._count

    def body(self, kind: str = "pub", name: str = "") -> bytes:
        """Return the body of the next message."""
        self.next_number()
        size = self.rng.choice(self.profile.sizes)
        filler = self.rng.choice((b"\0", b"x", b"NSQLOG\x02\n", b"\xb5NSQ"))
        # Not drawn, so that the work of a seed does not change.
        headed = kind != "dpub" and self._count % 5 in {1, 4}
        unique = self.rules.ruled and name == KEEPS
        head = ((UNIQUE if unique else HEADED) if headed else b"message ") + b"%06d " % self._count
        return (head + filler * size)[: max(size, len(head))]

    def publishing(self) -> Client:
        """Return the publisher's connection, a new one if the last was closed."""
        if self._publisher is None or self._publisher.closed:
            client = self._publisher = self.node.connect()
            replies: deque[Callable[[bool, bytes], None]] = deque()
            self._replies = replies

            def reply(kind: int, data: bytes) -> None:
                if data.startswith(b"E_") and not data.startswith((b"E_PUB", b"E_MPUB", b"E_DPUB")):
                    raise Broken(f"a publisher was told {data!r}")
                if replies:
                    replies.popleft()(kind != FRAME_ERROR, data)

            client.on_reply = reply
        return self._publisher

    def await_reply(self, answered: Callable[[bool, bytes], None]) -> None:
        """Call *answered* with the answer to the publisher's next command."""
        self._replies.append(answered)

    async def publish(self) -> None:
        name = self.rng.choice(TOPICS)
        kind = self.rng.choice(self.profile.kinds)
        count = {"mpub": self.rng.randint(1, 6), "dpub": self.rng.choice((1, 1, 2, 5))}.get(kind, 1)
        bodies = [self.body(kind, name) for _ in range(count)]
        self.publish_now(name, kind, bodies)

    def publish_now(self, name: str, kind: str, bodies: list[bytes]) -> None:
        """Publish without waiting for the answer."""
        self.requests.notice_deleted()
        client = self.publishing()
        position = self.position
        dues_ns = [0 for _ in bodies]
        if kind == "dpub":
            # Messages of one moment with one delay are stored together.
            own = self.rng.random() < self.profile.own_delays
            common_ms = self.rng.choice(self.profile.delays_ms)
            delays_ms = [self.rng.randrange(50, 20_000) if own else common_ms for _ in bodies]
            dues_ns = [self.loop.clock.wall_ns + delay_ms * MILLISECOND for delay_ms in delays_ms]
            command = b"".join(map(dpub, repeat(name), bodies, delays_ms))
            self.done[Deed.DEFERRED] += len(bodies)
            self.done[Deed.OWN_DUE_TIME] += len(bodies) if own else 0
        elif kind == "mpub":
            command = (mpub_ext if any(map(expected, bodies)) else mpub)(name, bodies)
        else:
            command = (pub_ext if expected(bodies[0]) else pub)(name, bodies[0])
        sent_ns = self.loop.clock.wall_ns
        self.note(f"{kind} {name} {[body[:14].decode() for body in bodies]}")
        topic_fact = self.model.fact(position)
        topic = self.model.make_topic(name, topic_fact)
        facts = [self.model.fact(position) for _ in bodies]
        for body, fact, due_ns in zip(bodies, facts, dues_ns, strict=True):
            message = self.model.publish(topic, body, fact, due_ns)
            message.published_ns = sent_ns
            self.rules.repeats.published(message)
        self.done[Deed.PUBLISHED] += len(bodies)
        self.done[Deed.HEADED] += sum(map(bool, map(expected, bodies)))

        def answered(some: list[tuple[bytes, Fact]], before: DedupBudget, ok: bool, data: bytes) -> None:
            if self.rules.refusals.judge(name, len(some), before, data):
                self.done[Deed.REFUSED] += len(some)
                for body, _ in some:
                    self.model.refused(topic, body)
                if topic.made is topic_fact and name not in self.node.broker.topics:
                    self.model.not_made(topic)
            elif ok:
                for fact in (topic.made, topic_fact, *(fact for _, fact in some)):
                    fact.answered = min(fact.answered, self.position)
                self.stored_ns |= dict.fromkeys([body for body, _ in some], sent_ns)
                if self.disk.failed:
                    self.done[Deed.ANSWERED_AFTER] += len(some)
            elif not self.faulty:
                raise Broken(f"publishing to {name} failed: {data!r}")

        pairs = list(zip(bodies, facts, strict=True))
        count = 0
        for some in [[pair] for pair in pairs] if kind == "dpub" else [pairs]:
            count += len(some)
            self.await_reply(partial(answered, some, self.rules.refusals.room(name, count)))
        client.say(command)

    # --- the rest ---

    def ask(
        self,
        what: str,
        arguments: dict[str, str],
        answered: Callable[[bool], None],
        told: Callable[[Any], None] = lambda _answer: None,
    ) -> None:
        """Begin a request; its answer comes later."""
        self._tasks.add(task := self.node.request(what, arguments, answered, told))
        task.add_done_callback(self._tasks.discard)

    async def repeat(self) -> None:
        """Publish a message with an id again."""
        self.requests.notice_deleted()
        self.rules.repeats.publish_one()

    async def send_back(self) -> None:
        """Send dead letters back."""
        self.requests.notice_deleted()
        self.rules.letters.send_back()

    async def fill_disk(self) -> None:
        """Let the disk be nearly full for a while."""
        self.rules.fill_disk()

    async def wait(self) -> None:
        """Let time pass for syncs, checkpoints, time-outs and deferred messages."""
        seconds = self.rng.choice(self.profile.waits_s)
        await asyncio.sleep(seconds)
        self.rules.look(rested=True)
        self.requests.notice_deleted()
        if self.node.health.restart_reason:
            await self.restart()
        for reader in self.consumers.readers:
            if reader.client.closed and not self.faulty:
                raise Broken(f"the consumer of {reader.topic.name} was disconnected")

    async def restart(self) -> None:
        """Stop cleanly and start with another clock."""
        await self.stop()
        step_s = self.rng.choice((0, 0, -3600, 3600, -86_400 * 30))
        self.note(f"start, clock {step_s:+} s")
        self.loop.clock.set_wall(step_s)
        await self.start_at_last()
        self.done[Deed.RESTARTS] += 1

    # --- the end ---

    async def recover(self, *, faulty: bool = False) -> None:
        """End all faults; the node must become healthy, accept publishes and deliver its backlog.

        With *faulty* reads may still fail: then a publish may be refused, and the backlog is delivered.
        """
        self.disk.heal()
        self.rules.refusals.clear()
        self.was_faulty = self.faulty
        await asyncio.sleep(RECOVERY_S)
        if self.node.health.restart_reason:
            # As Kubernetes does when /live fails.
            await self.restart()
        if not self.node.health.ok:
            raise Broken(f"unhealthy {RECOVERY_S} s after the fault: {self.node.health}")
        self.faulty = faulty
        for reader in list(self.consumers.readers):
            reader.client.close()
        self.consumers.readers = []
        for topic in self.model.living():
            self.publish_now(topic.name, "pub", [self.body()])
        await self.turns()
        await asyncio.sleep(1)
        debts = [debt for topic in self.model.topics for c in topic.channels for debt in c.debts.values()]
        dues = [due_ns for debt in debts for _, due_ns in debt.dues]
        latest_ns = max([0, *dues, *(message.due_ns for message in self.model.messages.values())])
        if latest_ns > self.loop.clock.wall_ns + DRAIN_ROUNDS * DRAIN_ROUND_S * SECOND:
            # The clock was set far back, so it is set forward instead of waiting.
            await self.stop()
            self.loop.clock.set_wall((latest_ns - self.loop.clock.wall_ns) / SECOND)
            await self.start_at_last()
        await self._drain()

    async def _drain(self) -> None:
        """Take and finish everything, and check that nothing is missing. Raises Broken."""
        self.consumers.draining = True
        for topic in self.model.living():
            if not topic.living:
                self.requests.request("channel/create", topic.name, CHANNELS[0])
            self.requests.request("topic/unpause", topic.name, "")
            for channel in topic.living:
                self.requests.request("channel/unpause", topic.name, channel.name)
                self.consumers.subscribe_to(topic.name, channel.name, 1000)
        await self.turns()
        for _ in range(DRAIN_ROUNDS):
            await asyncio.sleep(DRAIN_ROUND_S)
            await self.turns()
            if not any(True for _ in self._missing()):
                return
        raise Broken(f"never came: {list(self._missing())[:5]}")

    def _missing(self) -> Iterator[str]:
        for topic in self.model.living():
            for channel in topic.living:
                for body, debt in channel.debts.items():
                    promised = debt.message.stored.answered < NEVER and channel.made.answered < NEVER
                    promised = promised and (debt.given is None or debt.given.answered < NEVER)
                    due = promised and debt.finished == NEVER and debt.dropped is None
                    if due and not (body in channel.mortal and self.rules.is_dead(body)):
                        yield f"{topic.name}/{channel.name} {body[:24]!r}"

    def _settle(self) -> None:
        for task in list(self._tasks):
            if task.done():
                self._tasks.discard(task)

    def _forget_clients(self) -> None:
        self.stored_ns.clear()
        self.consumers.readers = []
        self._publisher = None
