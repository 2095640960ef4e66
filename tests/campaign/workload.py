"""Random work for a simulated node, and the model of what was promised meanwhile."""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, Final, NoReturn

from nsqclient.wire.frames import FRAME_ERROR
from nsqd.engine.settings import SettingsOf
from nsqd.storage.metadata import BadMetadata
from nsqd.storage.topic_store import FOLDER_SUFFIX
from tests.campaign.client import Client, ask_for_headers, dpub, mpub, mpub_ext, pub, pub_ext, sub
from tests.campaign.headed import HEADED, UNIQUE, body_of, expected
from tests.campaign.ledger import Deed, Ledger
from tests.campaign.model import NEVER, Channel, Debt, Fact, Model, Topic
from tests.campaign.node import KEEPS, RETAIN_NS, Node
from tests.campaign.profiles import Profile
from tests.campaign.refusals import MARK, Room
from tests.campaign.ruled import MORE, Rules
from tests.support.simulated_disk import Call, SimulatedDisk
from tests.support.simulated_loop import SECOND, SimulatedLoop

MILLISECOND: Final = 1_000_000
TOPICS: Final = ("orders", "events")
CHANNELS: Final = ("a", "b")
# How often a node is started again that a fault has kept from starting.
STARTS: Final = 50
# How long the node may take to notice that a fault is over.
RECOVERY_S: Final = 70
# Until everything has come that was deferred, for 50 minutes at most.
DRAIN_ROUND_S: Final = 20
DRAIN_ROUNDS: Final = 160
MAX_CONSUMERS: Final = 4


class Broken(Exception):
    """The node broke a promise while it ran; the text says which."""


@dataclass(eq=False)
class Reader:
    """A consumer and what it has to answer: (message id, debt)."""

    client: Client
    topic: Topic
    channel: Channel
    has: dict[bytes, Debt] = field(default_factory=dict)
    errors: int = 0
    # By message id, of what it was given.
    attempts: dict[bytes, int] = field(default_factory=dict)

    def holds(self, debt: Debt) -> bool:
        """Whether it is there and has not answered."""
        return not self.client.closed and debt in self.has.values()


class Workload:
    """Plays steps drawn from *rng* on a node; everything it asks for and hears goes into the model."""

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
        """With *ruled* policies are in force."""
        self.disk = disk
        self.loop = loop
        self.rng = rng
        self.profile = profile
        self.strict = strict
        self.model = model or Model()
        self.node: Node
        self.trace: list[str] = []
        # What was done so far.
        self.done: Ledger = Counter()
        # Times at which positions were reached: (position, engine's time, time on the wall).
        self.times: list[tuple[int, int, int]] = []
        # Calls may fail: an error is no broken promise, an answer is one as ever.
        self.faulty = False
        self.bodies_by_id: dict[tuple[str, bytes], bytes] = {}
        self._readers: list[Reader] = []
        self._publisher: Client | None = None
        self._replies: deque[Callable[[bool, bytes], None]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        # What was finished in the life of this node: it does not come again.
        self._finished: set[Debt] = set()
        self.was_faulty = False
        # Topics of which a fault has left open whether they are paused, emptied, have a channel.
        self._in_doubt: set[str] = set()
        # Whatever comes is finished at once.
        self._draining = False
        # Topics that are to be deleted when threads have let go of their files.
        self._leaving: list[tuple[Topic, Fact, object]] = []
        self._count = len(self.model.messages)
        # Requests that set a channel to a place or make it there, and what is done when that happens.
        self._placing: dict[tuple[str, str], Callable[[], None]] = {}
        # When messages were stored in this life of the node, by the wall.
        self._stored_ns: dict[bytes, int] = {}
        self.rules = Rules(self, ruled=ruled)
        self._watch_compactions()

    def break_off(self, text: str) -> NoReturn:
        raise Broken(text)

    @property
    def position(self) -> int:
        return len(self.disk.steps)

    @property
    def settings_of(self) -> SettingsOf:
        """What policies say."""
        return self.rules.settings_of

    def is_leaving(self, topic: Topic) -> bool:
        """Whether somebody has asked for its deletion."""
        return any(leaving is topic for leaving, _, _ in self._leaving)

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
        self._placing.clear()
        self.node.on_placed = lambda topic, channel: self._placing[topic, channel]()
        await self.node.start()
        self.rules.started()
        self._note_used()

    async def start_at_last(self) -> None:
        """Start the node, again and again when it ends with an error, as whoever keeps it running does."""
        for attempt in range(STARTS):
            try:
                await self.start()
            except (OSError, BadMetadata):
                await self.node.abandon()
                if attempt + 1 == STARTS:
                    raise
            else:
                return

    async def stop(self) -> None:
        """Stop the node in good order."""
        self.note("stop")
        failed = self.disk.failed
        await self.node.stop()
        self.rules.look()
        if self.disk.open_paths:
            raise Broken(f"descriptors are left open: {self.disk.open_paths}")
        if self.faulty:
            # Perhaps the last checkpoint could not be written.
            self._finished.clear()
        self._notice_deleted()
        self._settle()
        if self.disk.failed == failed:
            self.model.stopped(self.position)
        else:
            self.model.sync_failed()
        self._forget_clients()

    async def play(self) -> None:
        """Do the work that the profile describes."""
        named = {**self.profile.weights, **(MORE if self.rules.ruled else {})}
        actions = [(_ACTIONS[name], weight) for name, weight in named.items()]
        weights = [weight for _, weight in actions]
        for _ in range(self.profile.steps):
            action, _ = self.rng.choices(actions, weights)[0]
            await action(self)
            await self._turns()

    async def _turns(self) -> None:
        """Let what was asked for be done; answers that wait for a thread come later."""
        for _ in range(3):
            await asyncio.sleep(0)
        self._notice_deleted()
        self._note_used()
        self.rules.look()
        self.times.append((self.position, self.loop.clock.monotonic_ns, self.loop.clock.wall_ns))
        if self.loop.failures:
            raise Broken(self.loop.failures[0])
        if (ended := self.node.ended()) is not None:
            raise Broken(f"a task of the node ended: {ended!r}")

    def _notice_deleted(self) -> None:
        """A topic is gone when its name stands for nothing, or for another."""
        for topic, fact, was in list(self._leaving):
            if self.node.broker.topics.get(topic.name) is not was:
                self._leaving.remove((topic, fact, was))
                self.model.remove(topic, fact)
                self._readers = [reader for reader in self._readers if reader.topic is not topic]

    def note(self, text: str) -> None:
        """Say what was asked for, for who reads of a violation."""
        self.trace.append(f"{self.position}: {text}")

    def _note_used(self) -> None:
        self.model.used.append((self.position, self.node.used_sequences()))

    # --- publishing ---

    def next_number(self) -> int:
        """What the next message is called."""
        self._count += 1
        return self._count

    def _body(self, kind: str = "pub", name: str = "") -> bytes:
        self.next_number()
        size = self.rng.choice(self.profile.sizes)
        filler = self.rng.choice((b"\0", b"x", b"NSQLOG\x02\n", b"\xb5NSQ"))
        # Not drawn, so that the work of a seed stays what it was.
        headed = kind != "dpub" and self._count % 5 in {1, 4}
        unique = self.rules.ruled and name == KEEPS
        head = ((UNIQUE if unique else HEADED) if headed else b"message ") + b"%06d " % self._count
        return (head + filler * size)[: max(size, len(head))]

    def publishing(self) -> Client:
        """The connection of the publisher."""
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
        """Have that called with the answer to what the publisher says next."""
        self._replies.append(answered)

    async def publish(self) -> None:
        name = self.rng.choice(TOPICS)
        kind = self.rng.choice(self.profile.kinds)
        count = {"mpub": self.rng.randint(1, 6), "dpub": self.rng.choice((1, 1, 2, 5))}.get(kind, 1)
        bodies = [self._body(kind, name) for _ in range(count)]
        self.publish_now(name, kind, bodies)

    def publish_now(self, name: str, kind: str, bodies: list[bytes]) -> None:
        """Publish without waiting for the answer."""
        self._notice_deleted()
        client = self.publishing()
        position = self.position
        dues_ns = [0 for _ in bodies]
        if kind == "dpub":
            # Those of one moment and one delay are stored together.
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

        def answered(some: list[tuple[bytes, Fact]], before: Room, ok: bool, data: bytes) -> None:
            if self.rules.refusals.judge(name, len(some), before, data):
                self.done[Deed.REFUSED] += len(some)
                for body, _ in some:
                    self.model.refused(topic, body)
            elif ok:
                for fact in (topic.made, topic_fact, *(fact for _, fact in some)):
                    fact.answered = min(fact.answered, self.position)
                self._stored_ns |= dict.fromkeys([body for body, _ in some], sent_ns)
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

    # --- topics and channels ---

    async def administrate(self) -> None:
        """One request to /topic/* or /channel/*."""
        self.request(self.rng.choice(_REQUESTS), self.rng.choice(TOPICS), self.rng.choice(CHANNELS))

    def request(self, what: str, name: str, channel_name: str) -> None:
        """Ask by HTTP; the part of the work that comes before the first wait is done at once."""
        what, _, query = what.partition("?")
        self._notice_deleted()
        position = self.position
        topic = self.model.topic(name)
        if topic and self.is_leaving(topic):
            return
        channel = made = topic.channel(channel_name) if topic else None
        fact = self.model.fact(position)
        placed = bool(query) and channel is None
        if placed and (name, channel_name) in self._placing:
            return
        on_channel = what.startswith("channel")
        if what == "topic/create":
            self.model.make_topic(name, fact)
        elif topic is None:
            return
        elif placed:
            self._placing[name, channel_name] = partial(self._made_there, name, channel_name, fact)
        elif what == "channel/create":
            made = self.model.make_channel(topic, channel_name, fact)
        elif on_channel and channel is None:
            return
        elif what == "topic/delete":
            self._leaving.append((topic, fact, self.node.broker.topics.get(name)))
        else:
            self._change(what, channel if on_channel and channel else topic, fact)
        self.note(f"{what} {name} {channel_name if on_channel else ''} {query}")
        if (deed := _DEEDS.get(what)) is not None and not (what == "channel/create" and made is channel):
            self.done[deed] += 1
        arguments = {"topic": name} | ({"channel": channel_name} if on_channel else {})
        if query:
            arguments |= [query.split("=")]

        def answered(ok: bool) -> None:
            if placed:
                self._placing.pop((name, channel_name), None)
            if ok:
                # Whatever the mode is, this is answered when it is on the disk for sure.
                fact.answered = fact.synced = self.position
                return
            self._notice_deleted()
            # A topic that could not be deleted stays; all else has been done, and is not promised.
            self._leaving = [entry for entry in self._leaving if entry[1] is not fact]
            if self.faulty:
                self._in_doubt.add(name)
            elif name not in self._in_doubt:
                raise Broken(f"{what} {name} failed")

        self.ask(what, arguments, answered)
        self._notice_deleted()

    def _made_there(self, name: str, channel_name: str, fact: Fact) -> None:
        """The channel was made just now, at a place in the log."""
        self._notice_deleted()
        topic = self.model.topic(name)
        if topic is None:
            raise Broken(f"{name}/{channel_name} was made, and the topic is gone")
        made = self.model.make_channel(topic, channel_name, fact)
        self._given(topic, made, self.position)
        self.done[Deed.CHANNELS_MADE] += 1

    def ask(
        self,
        what: str,
        arguments: dict[str, str],
        answered: Callable[[bool], None],
        told: Callable[[Any], None] = lambda _answer: None,
    ) -> None:
        """Begin a request, whose answer comes later."""
        self._tasks.add(task := self.node.request(what, arguments, answered, told))
        task.add_done_callback(self._tasks.discard)

    def _given(self, topic: Topic, made: Channel, position: int) -> None:
        """A channel was made from the earliest: it has at least what others are owed, and that stays."""
        self.rules.sought(topic, made, self.node.owed_by(topic.name, made.name))
        bodies = self.node.owed_bodies(topic.name, made.name, stored=True)
        others = [channel for channel in topic.living if channel is not made]
        owed = {
            body
            for one in others
            # What was published and is not stored yet will be given to the new one as well.
            for body in one.debts.keys() & self.node.owed_by(topic.name, one.name).keys()
            if one.debts[body].is_owed(position) and body not in one.mortal and body not in one.returned
        }
        missing = owed - bodies - made.debts.keys()
        if missing and not (self.faulty or self.was_faulty):
            raise Broken(f"{topic.name}/{made.name} from the earliest lacks {min(missing)[:24]!r}")
        # What was finished and let go of, or owed by a former channel of the name, may still be in memory.
        its = {body for body, debt in made.debts.items() if debt.dropped is None}
        remembered = self.node.owed_bodies(topic.name, made.name, stored=False) - bodies - its
        self.done[Deed.FROM_EARLIEST] += 1
        self.done[Deed.GIVEN] += len(bodies | remembered)
        for body in bodies | remembered:
            self.model.give(made, body, position, stays=body in bodies)
        if self.faulty:
            # What could not be read just now may have been given as well.
            for message in topic.messages:
                debt = made.debts.get(message.body)
                if message.body not in bodies and (debt is None or debt.dropped is not None):
                    self.model.give(made, message.body, position, stays=False)

    def _change(self, what: str, owner: Topic | Channel, fact: Fact) -> None:
        verb = what.partition("/")[2]
        if verb == "delete":
            self.model.remove(owner, fact)
            self._readers = [reader for reader in self._readers if reader.channel is not owner]
        elif verb == "empty":
            self.model.empty(owner, fact)
            for reader in self._readers:
                if reader.channel is owner:
                    reader.has.clear()
        else:
            self.model.pause(owner, fact, paused=verb == "pause")

    async def recreate(self) -> None:
        """Delete a topic and make it again, and publish to it, in the same moment."""
        name = self.rng.choice(TOPICS)
        if self.model.topic(name) is None:
            return
        if self.rng.random() < 0.5:
            self.publish_now(name, "pub", [self._body()])
        self.request("topic/delete", name, "")
        self.done[Deed.TOPICS_REMADE] += 1
        if self.rng.random() < 0.5:
            self.request("topic/create", name, "")
        if self.rng.random() < 0.7:
            self.request("channel/create", name, self.rng.choice(CHANNELS))
        self.publish_now(name, "pub", [self._body()])

    async def recreate_channel(self) -> None:
        """Delete a channel and make it again in the same moment."""
        name, channel = self.rng.choice(TOPICS), self.rng.choice(CHANNELS)
        topic = self.model.topic(name)
        if topic and topic.channel(channel):
            self.request("channel/delete", name, channel)
            self.request("channel/create", name, channel)

    def _watch_compactions(self) -> None:
        """Have channels made from the earliest while what nobody owes is let go of: else that is rare."""
        noted = self.disk.before_call

        def watch(call: Call) -> None:
            noted(call)
            begins = call.operation == "create" and call.path.endswith(".new")
            if begins and not self._draining and self.rng.random() < self.profile.meets_earliest:
                self.loop.call_soon(self._from_the_earliest, Path(call.path).parent.name)

        self.disk.before_call = watch

    def _from_the_earliest(self, folder: str) -> None:
        name, channel_name = folder.removesuffix(FOLDER_SUFFIX), self.rng.choice(CHANNELS)
        self.request("channel/delete", name, channel_name)
        self.request("channel/create?start=earliest", name, channel_name)

    # --- replay, and single messages ---

    def _some_channel(self) -> tuple[Topic, Channel] | None:
        self._notice_deleted()
        topic = self.model.topic(self.rng.choice(TOPICS))
        channel = topic.channel(self.rng.choice(CHANNELS)) if topic else None
        if topic is None or channel is None or self.is_leaving(topic):
            return None
        if (topic.name, channel.name) in self._placing:
            return None
        here = self.node.broker.topics.get(topic.name)
        return (topic, channel) if here and channel.name in here.channels else None

    def _answer_to(
        self, what: str, topic: Topic, fact: Fact, channel: Channel | None = None
    ) -> Callable[[bool], None]:
        def answered(ok: bool) -> None:
            if ok:
                fact.answered = fact.synced = self.position
            elif not self.faulty and topic.exists and (channel is None or channel.exists):
                raise Broken(f"{what} {topic.name} failed")

        return answered

    async def seek(self) -> None:
        """Set a channel to the earliest, the latest, or one of the messages that are kept."""
        found = self._some_channel()
        if found is None:
            return
        topic, channel = found
        log = self.node.broker.topics[topic.name].log
        if log.kept_from > log.next_seq:
            return
        owed = sorted(self.node.owed_by(topic.name, channel.name).values())
        to = self.rng.choice(
            ("earliest", "earliest", "latest", str(self.rng.choice(owed)) if owed else "latest")
        )
        if to.isdecimal() and int(to) < log.kept_from:
            return
        self.note(f"seek {topic.name} {channel.name} {to}")
        fact = self.model.fact(self.position)
        arguments = {"topic": topic.name, "channel": channel.name, "to": to}
        heard = self._answer_to("seek", topic, fact, channel)
        place = topic.name, channel.name
        self._placing[place] = partial(self._sought, *place, to, fact)

        def answered(ok: bool) -> None:
            self._placing.pop(place, None)
            heard(ok)

        self.ask("channel/seek", arguments, answered)

    def _sought(self, name: str, channel_name: str, to: str, fact: Fact) -> None:
        """The channel was set to that place just now."""
        self._notice_deleted()
        topic = self.model.topic(name)
        channel = topic.channel(channel_name) if topic else None
        if topic is None or channel is None:
            raise Broken(f"{name}/{channel_name} was set to {to}, and is gone")
        if to != "earliest":
            for debt in topic.backlog:
                if debt.finished == NEVER:
                    channel.passed.setdefault(debt.message.body, Fact(fact.asked))
        found_owed = self.node.owed_by(topic.name, channel.name)
        self.rules.sought(topic, channel, found_owed)
        now_owed = set(found_owed)
        if to == "earliest" and topic.name == KEEPS and not (self.faulty or self.was_faulty):
            self._look_what_is_kept(topic, channel, now_owed)
        stored = set(self.node.owed_by(topic.name, channel.name, stored=True))
        sure = not (self.faulty or self.was_faulty)
        self.done[Deed.REPLAYED] += self.model.sought(channel, now_owed, stored, fact, sure=sure)
        self.done[Deed.SOUGHT] += 1
        for reader in self._readers:
            if reader.channel is channel:
                for id_ in [id_ for id_, debt in reader.has.items() if debt.dropped is not None]:
                    del reader.has[id_]

    def _look_what_is_kept(self, topic: Topic, channel: Channel, owed: set[bytes]) -> None:
        """A channel that was set to the earliest owes whatever a policy keeps."""
        young_ns = self.loop.clock.wall_ns - RETAIN_NS
        waiting = {debt.message.body for debt in topic.backlog if debt.finished == NEVER}
        for message in topic.messages:
            at_ns = self._stored_ns.get(message.body, 0)
            if message.stored.answered <= self.position and at_ns > young_ns and message.body not in waiting:
                if message.body not in owed:
                    raise Broken(f"{topic.name}/{channel.name}: {message.body[:24]!r} is not kept")
                debt = channel.debts.get(message.body)
                if debt is not None and debt.finished < NEVER:
                    self.done[Deed.KEPT] += 1

    async def handle(self) -> None:
        """Finish, requeue, send or cancel one message that a channel owes, by its id."""
        found = self._some_channel()
        if found is None:
            return
        topic, channel = found
        owed = self.node.owed_by(topic.name, channel.name)
        if not owed:
            return
        body = self.rng.choice(sorted(owed))
        seq, debt = owed[body], channel.debts.get(body)
        verb = self.rng.choice(("finish", "requeue", "requeue", "send", "cancel"))
        deferred = self.node.is_deferred(topic.name, channel.name, seq)
        if debt is None or debt.finished < NEVER or (verb in {"send", "cancel"} and not deferred):
            return
        delay_ms = self.rng.choice((0, 1500, 20_000)) if verb == "requeue" else 0
        self.note(f"{verb} {body[:14].decode()} on {channel.name} {delay_ms} ms")
        fact = self.model.fact(self.position)
        arguments = {"topic": topic.name, "channel": channel.name, "id": self.node.id_of(seq)}
        if delay_ms:
            arguments["defer"] = str(delay_ms)
        answered = self._answer_to(verb, topic, fact)
        came = (NEVER, self.loop.clock.wall_ns + delay_ms * MILLISECOND if delay_ms else 0)

        def put_off(ok: bool) -> None:
            answered(ok)
            if ok and came in debt.dues:
                debt.dues[debt.dues.index(came)] = (self.position, came[1])

        if verb in {"finish", "cancel"}:
            debt.dropped = debt.dropped or fact
        else:
            debt.dues.append(came)
        told = answered if verb in {"finish", "cancel"} else put_off
        self.ask(f"message/{verb}", arguments, told)
        if verb in {"finish", "cancel"} and self.node.is_owed(topic.name, channel.name, seq):
            raise Broken(f"{topic.name}/{channel.name} owes {body[:24]!r} after {verb}")
        self.done[Deed.HANDLED] += 1
        for reader in self._readers:
            if reader.channel is channel:
                for id_ in [id_ for id_, has in reader.has.items() if has is debt]:
                    del reader.has[id_]

    async def repeat(self) -> None:
        """Publish again what has an id."""
        self._notice_deleted()
        self.rules.repeats.publish_one()

    async def send_back(self) -> None:
        """Send dead letters back."""
        self._notice_deleted()
        self.rules.letters.send_back()

    async def fill_disk(self) -> None:
        """Have the disk be nearly full for a while."""
        self.rules.fill_disk()

    # --- consuming ---

    async def subscribe(self) -> None:
        if len(self._readers) >= MAX_CONSUMERS:
            await self.unsubscribe()
            return
        self.subscribe_to(
            self.rng.choice(TOPICS), self.rng.choice(CHANNELS), self.rng.choice(self.profile.ready)
        )

    def subscribe_to(self, name: str, channel_name: str, ready: int) -> None:
        """Add a consumer."""
        self._notice_deleted()
        self.note(f"SUB {name} {channel_name} RDY {ready}")
        fact, topic_fact = self.model.fact(self.position), self.model.fact(self.position)
        # SUB is answered at once: what the channel owes is safe without it.
        fact.unforced = topic_fact.unforced = True
        topic = self.model.make_topic(name, topic_fact)
        channel = self.model.make_channel(topic, channel_name, fact)
        client = self.node.connect()
        calls = len(self.disk.calls)
        reader = Reader(client, topic, channel)
        self._readers.append(reader)

        def reply(kind: int, data: bytes) -> None:
            if data == b"OK":
                if any(call.error for call in self.disk.calls[calls:]):
                    # Known in memory, and written with the next append that works: nothing is promised yet.
                    return
                fact.answered = topic_fact.answered = self.position
            elif kind == FRAME_ERROR and data.startswith((b"E_FIN", b"E_REQ", b"E_TOUCH")):
                reader.errors += 1
            elif not self.faulty:
                raise Broken(f"a consumer was told {data!r}")

        client.on_reply = reply
        extended = len(self._readers) % 2 == 0
        client.on_message = lambda id_, attempts, body: self._delivered(
            reader, id_, attempts, body_of(body) if extended else body
        )
        if extended:
            client.say(ask_for_headers())
        client.say(sub(name, channel_name))
        client.say(b"RDY %d\n" % ready)

    def _delivered(self, reader: Reader, id_: bytes, attempts: int, body: bytes) -> None:
        if self.bodies_by_id.setdefault((reader.topic.name, id_), body) != body:
            raise Broken(f"id {id_!r} was given to two messages")
        debt = reader.channel.debts.get(body)
        if debt is None:
            if not (self.faulty or self.was_faulty):
                raise Broken(
                    f"{reader.topic.name}/{reader.channel.name} was given {body[:24]!r}, not its own"
                )
            # A fault may have kept from the disk that a channel was made, or a topic emptied or paused.
            reader.client.say(b"FIN %b\n" % id_)
            if body in self.model.messages:
                self.model.messages[body].strayed = self.position
            return
        if debt in self._finished and body not in reader.channel.doubled:
            raise Broken(f"{reader.topic.name}/{reader.channel.name} was given {body[:24]!r} after FIN")
        if debt.dropped is not None and debt.dropped.answered <= self.position:
            raise Broken(f"{reader.topic.name}/{reader.channel.name} was given {body[:24]!r} after empty")
        since, due_ns = debt.dues[-1] if debt.dues else (0, 0)
        # Once it was due it waits, wherever the clock is set back to later.
        early_ns = due_ns - self.loop.clock.latest_ns
        if early_ns > MILLISECOND and not any(since <= position for position in debt.deliveries):
            raise Broken(f"{body[:24]!r} came {early_ns / SECOND:.3f} s too soon")
        self.rules.delivered(reader, debt, attempts, id_)
        reader.attempts[id_] = attempts
        debt.deliveries.append(self.position)
        if any(debt in other.has.values() for other in self._readers):
            self.done[Deed.TIMED_OUT] += 1
        if self._draining:
            self.loop.call_soon(self._finish_at_once, reader, id_, debt)
        else:
            reader.has[id_] = debt

    def _finish_at_once(self, reader: Reader, id_: bytes, debt: Debt) -> None:
        reader.client.say(b"FIN %b\n" % id_)
        self._is_finished(debt, self.position)

    async def unsubscribe(self) -> None:
        if self._readers:
            reader = self._readers.pop(self.rng.randrange(len(self._readers)))
            self.note(f"close {reader.topic.name} {reader.channel.name}")
            reader.client.close()

    async def answer(self) -> None:
        """FIN, REQ or TOUCH some of what consumers have."""
        for reader in list(self._readers):
            for id_ in list(reader.has):
                draw = self.rng.random()
                profile = self.profile
                if draw < profile.finished:
                    await self._finish(reader, id_)
                elif draw < profile.finished + profile.requeued:
                    await self._requeue(reader, id_)
                elif draw < profile.finished + profile.requeued + profile.touched:
                    reader.client.say(b"TOUCH %b\n" % id_)
                    self.done[Deed.TOUCHED] += 1
                    await self._turns()

    async def _finish(self, reader: Reader, id_: bytes) -> None:
        debt = reader.has.pop(id_)
        self.note(f"FIN {debt.message.body[:14].decode()} on {reader.channel.name}")
        before, errors = self.position, reader.errors
        reader.client.say(b"FIN %b\n" % id_)
        await self._turns()
        if reader.errors == errors and not reader.client.closed and debt.finished == NEVER:
            self._is_finished(debt, before)

    def _is_finished(self, debt: Debt, position: int) -> None:
        self._finished.add(debt)
        debt.finished, debt.finished_ns = position, self.loop.clock.monotonic_ns
        self.done[Deed.FINISHED] += 1

    async def _requeue(self, reader: Reader, id_: bytes) -> None:
        if next(iter(reader.has)) != id_:
            self.done[Deed.OUT_OF_ORDER] += 1
        debt = reader.has.pop(id_)
        delay_ms = self.rng.choice(self.profile.requeue_ms)
        if delay_ms and self.rng.random() < self.profile.own_delays:
            delay_ms = self.rng.randrange(50, 20_000)
        self.done[Deed.PUT_OFF if delay_ms else Deed.REQUEUED] += 1
        # It may come again in this turn.
        errors, attempts = reader.errors, reader.attempts[id_]
        delay_ns = delay_ms * MILLISECOND or self.rules.retry_after_ns(reader.topic, reader.channel, attempts)
        due_ns = self.loop.clock.wall_ns + delay_ns
        self.done[Deed.RETRIED] += bool(delay_ns) and not delay_ms
        self.note(f"REQ {debt.message.body[:14].decode()} on {reader.channel.name} {delay_ms} ms")
        reader.client.say(b"REQ %b %d\n" % (id_, delay_ms))
        # Until the turn is over, the message is where it was or deferred; from then on it is deferred.
        came = (NEVER, due_ns if delay_ns else 0)
        debt.dues.append(came)
        await self._turns()
        debt.dues.remove(came)
        told = reader.errors == errors and not reader.client.closed
        if told and not self.rules.dies(reader.topic, reader.channel, debt, id_, attempts):
            debt.dues.append((self.position, came[1]))

    # --- the rest ---

    async def wait(self) -> None:
        """Let time pass: for syncs, checkpoints, time-outs and what is deferred."""
        seconds = self.rng.choice(self.profile.waits_s)
        await asyncio.sleep(seconds)
        self.rules.look(rested=True)
        self._notice_deleted()
        for reader in self._readers:
            if reader.client.closed and not self.faulty:
                raise Broken(f"the consumer of {reader.topic.name} was disconnected")

    async def restart(self) -> None:
        """A clean stop, and a start by another clock."""
        await self.stop()
        step_s = self.rng.choice((0, 0, -3600, 3600, -86_400 * 30))
        self.note(f"start, clock {step_s:+} s")
        self.loop.clock.set_wall(step_s)
        await self.start_at_last()
        self.done[Deed.RESTARTS] += 1

    # --- the end ---

    async def recover(self) -> None:
        """All faults are over: the node must become healthy and publish by itself, and give all it owes."""
        self.disk.heal()
        self.rules.refusals.clear()
        self.was_faulty = self.faulty
        await asyncio.sleep(RECOVERY_S)
        if not self.node.health.ok:
            raise Broken(f"unhealthy {RECOVERY_S} s after the fault: {self.node.health}")
        self.faulty = False
        for reader in list(self._readers):
            reader.client.close()
        self._readers = []
        for topic in self.model.living():
            self.publish_now(topic.name, "pub", [self._body()])
        await self._turns()
        await asyncio.sleep(1)
        debts = [debt for topic in self.model.topics for c in topic.channels for debt in c.debts.values()]
        dues = [due_ns for debt in debts for _, due_ns in debt.dues]
        latest_ns = max([0, *dues, *(message.due_ns for message in self.model.messages.values())])
        if latest_ns > self.loop.clock.wall_ns + DRAIN_ROUNDS * DRAIN_ROUND_S * SECOND:
            # The clock was set back for long: nobody wants to wait for that.
            await self.stop()
            self.loop.clock.set_wall((latest_ns - self.loop.clock.wall_ns) / SECOND)
            await self.start_at_last()
        await self._drain()

    async def _drain(self) -> None:
        """Take and finish everything, and see that nothing is missing."""
        self._draining = True
        for topic in self.model.living():
            if not topic.living:
                self.request("channel/create", topic.name, CHANNELS[0])
            self.request("topic/unpause", topic.name, "")
            for channel in topic.living:
                self.request("channel/unpause", topic.name, channel.name)
                self.subscribe_to(topic.name, channel.name, 1000)
        await self._turns()
        for _ in range(DRAIN_ROUNDS):
            await asyncio.sleep(DRAIN_ROUND_S)
            await self._turns()
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
        self._stored_ns.clear()
        self._readers = []
        self._publisher = None


_ACTIONS: Final = {
    action.__name__: action
    for action in (
        Workload.publish,
        Workload.administrate,
        Workload.recreate,
        Workload.recreate_channel,
        Workload.seek,
        Workload.handle,
        Workload.repeat,
        Workload.send_back,
        Workload.fill_disk,
        Workload.subscribe,
        Workload.unsubscribe,
        Workload.answer,
        Workload.wait,
        Workload.restart,
    )
}
_REQUESTS: Final = (
    "topic/create",
    "topic/delete",
    "topic/empty",
    "topic/pause",
    "topic/unpause",
    "topic/unpause",
    "channel/create",
    "channel/create?start=earliest",
    "channel/create?start=earliest",
    "channel/delete",
    "channel/empty",
    "channel/pause",
    "channel/unpause",
    "channel/unpause",
)
_DEEDS: Final = {
    "topic/delete": Deed.TOPICS_DELETED,
    "topic/empty": Deed.TOPICS_EMPTIED,
    "topic/pause": Deed.TOPICS_PAUSED,
    "channel/create": Deed.CHANNELS_MADE,
    "channel/delete": Deed.CHANNELS_DELETED,
    "channel/empty": Deed.CHANNELS_EMPTIED,
    "channel/pause": Deed.CHANNELS_PAUSED,
}
