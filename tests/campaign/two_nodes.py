"""Random histories of a home and a node that carries its log beside its own: kills, power cuts, returns.

A message that was answered when it was in the copy is delivered on each channel that existed, by the home or
by the carrier. Facts about finished messages are true. Without a crash, and unless both nodes serve at once,
no finished message is delivered again.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nsqd.engine import carried, facts
from nsqd.engine.carried_topic import CarriedTopic
from nsqd.engine.topic import Topic
from nsqd.log.frames import Block
from nsqd.log.gaps import EVERYTHING
from nsqd.log.ranges import without
from nsqd.storage.carried import forget_here, open_carried
from nsqd.storage.carried_store import HERE
from nsqd.storage.data_path import claim
from nsqd.storage.topic_store import FOLDER_SUFFIX
from tests.support.machine import Machine
from tests.support.simulated_disk import SimulatedDisk

DATA: Final = Path("/data")
NAME: Final = "t"
HOME: Final = DATA / (NAME + FOLDER_SUFFIX)
COPY: Final = DATA / "carried" / (NAME + FOLDER_SUFFIX)
HOME_ID, CARRIER_ID = 3, 4
CHANNELS: Final = ("a", "b")


class BrokenPromise(Exception):
    """A promise was broken; the text says which."""


@dataclass(eq=False)
class Sent:
    """A message that was answered, and the channels that existed then."""

    body: bytes
    channels: set[str]
    copied: bool = False
    own: bool = False


@dataclass
class World:
    """Two nodes and the promises."""

    seed: int
    crashes: bool = True
    both: bool = True
    sent: list[Sent] = field(default_factory=list)
    # By channel: bodies that consumers have finished, or that were emptied.
    done: dict[str, set[bytes]] = field(default_factory=dict)
    again: int = 0
    deeds: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.disks = [SimulatedDisk(), SimulatedDisk()]
        for disk in self.disks:
            disk.make_folder(DATA)
        self.disks[1].make_folder(COPY.parent)
        self.disks[1].make_folder(COPY)
        for disk in self.disks:
            disk.sync_all()
        self.home: Machine | None = Machine(DATA, HOME_ID, self.disks[0])
        self.carrier = Machine(DATA, CARRIER_ID, self.disks[1])
        self.copy: CarriedTopic | None = None
        self.bodies: dict[bytes, bytes] = {}
        self.known = 0

    # --- events ---

    def publish(self) -> None:
        own = self.rng.random() < 0.3
        node = self.carrier if own else self.home
        if node is None:
            return
        bodies = [b"%d %d" % (self.known + at, own) for at in range(self.rng.randint(1, 4))]
        self.known += len(bodies)
        if self.rng.random() < 0.2:
            bodies[0] += b"x" * 700
        channels = set(node.topic(NAME).channels)
        node.publish(*bodies, topic=NAME)
        if own:
            node.sync(node.topic(NAME))
        new = [Sent(body, channels, own=own) for body in bodies]
        self.sent += new
        if not own and self.rng.random() < 0.7:
            self.stream()

    def stream(self) -> None:
        """Bring the copy up to date, unless it is served."""
        if self.home is None or self.copy is not None:
            return
        here, there = self.disks
        if NAME + FOLDER_SUFFIX not in here.names(DATA):
            return
        names = [name for name in here.names(HOME) if name.endswith(".log") or name.startswith("checkpoint.")]
        for name in sorted(names, reverse=True):
            there.replace(COPY / name, here.read_file(HOME / name), durable=True)
        for name in set(there.names(COPY)) - {*names, HERE}:
            there.remove(COPY / name)
        there.sync_folder(COPY)
        for one in self.sent:
            one.copied = True

    def create(self) -> None:
        node = self.rng.choice([one for one in (self.home, self.carrier) if one is not None])
        if node is self.home or self.copy is not None:
            node.channel(self.rng.choice(CHANNELS), NAME)
            node.turn()
            node.sync(node.topic(NAME))
            if node is self.home:
                self.stream()

    def consume(self) -> None:
        """Let a consumer take some messages, answer some, and leave."""
        node = self.rng.choice([one for one in (self.home, self.carrier) if one is not None])
        if NAME not in node.broker.topics or not node.topic(NAME).channels:
            return
        channel = node.topic(NAME).channels[self.rng.choice(sorted(node.topic(NAME).channels))]
        consumer, outlet = node.subscribe(channel, self.rng.randint(1, 6))
        for message_id, _, body in outlet.taken():
            self._given(channel.name, body)
            if self.rng.random() < 0.7:
                if node.answer(consumer, b"FIN", message_id):
                    raise BrokenPromise(f"FIN of {body!r} was refused")
                self.done.setdefault(channel.name, set()).add(body)
            elif self.rng.random() < 0.3:
                node.answer(consumer, b"REQ", message_id, b"%d" % self.rng.choice((0, 3000)))
            for _, _, more in outlet.taken():
                self._given(channel.name, more)
        node.broker.leave(consumer)
        node.turn()

    def _given(self, name: str, body: bytes) -> None:
        self.again += body in self.done.get(name, ())

    def empty(self) -> None:
        if self.copy is None or self.rng.random() < 0.8:
            return
        node = self.carrier
        for name, sibling in self.copy.channels.items():
            own = node.topic(NAME).channels[name]
            for topic, channel in ((self.copy, sibling), (node.topic(NAME), own)):
                self.done.setdefault(name, set()).update(_bodies(topic, channel.owed(0, EVERYTHING)))
            node.broker.empty_channel(node.topic(NAME), own)
        node.turn()
        node.checkpoint(self.copy)

    def checkpoint(self) -> None:
        node = self.rng.choice([one for one in (self.home, self.carrier) if one is not None])
        node.advance(1)
        if NAME in node.broker.topics:
            node.checkpoint(node.topic(NAME))
        if node is self.carrier and self.copy is not None:
            node.checkpoint(self.copy)
        if node is self.home:
            self.stream()

    def die(self) -> None:
        """Kill the home or cut its power; after a power cut messages that are in no copy may be lost."""
        if self.home is None:
            return
        if not self.crashes:
            self.home.checkpoint(self.home.topic(NAME))
            self.stream()
        cut = self.crashes and self.rng.random() < 0.5
        self.disks[0] = self.disks[0].after_power_cut(self.rng) if cut else self.disks[0].killed()
        if cut:
            self.sent = [one for one in self.sent if one.copied or one.own]
        self.home = None

    def carry(self) -> None:
        if self.copy is None and (self.home is None or (self.both and self.rng.random() < 0.3)):
            if NAME + FOLDER_SUFFIX not in self.disks[0].names(DATA) or not self.disks[1].names(COPY):
                return
            self.copy = open_carried(self.carrier.data, self.carrier.broker, COPY, NAME, "home", HOME_ID)
            self._check(self.copy)
            carried.attach(self.carrier.broker, self.copy, self.carrier.now_ns)
            self.carrier.turn()
            self.deeds["carried"] = self.deeds.get("carried", 0) + 1

    def crash_carrier(self) -> None:
        if not self.crashes:
            return
        cut = self.rng.random() < 0.5
        self.disks[1] = self.disks[1].after_power_cut(self.rng) if cut else self.disks[1].killed()
        was, self.copy = self.copy, None
        now_ns = self.carrier.now_ns
        self.carrier = Machine(DATA, CARRIER_ID, self.disks[1])
        self.carrier.now_ns = now_ns
        if was is not None:
            self.copy = open_carried(self.carrier.data, self.carrier.broker, COPY, NAME, "home", HOME_ID)
            carried.attach(self.carrier.broker, self.copy, self.carrier.now_ns)
            self.carrier.turn()

    def return_home(self) -> None:
        """Bring the home back; it learns what was finished and serves the rest."""
        if self.home is None:
            # The copy may have messages that the home has lost.
            self.carry()
            self.home = Machine(DATA, HOME_ID, self.disks[0])
        if NAME not in self.home.broker.topics:
            return
        topic, copy = self.home.topic(NAME), self.copy
        if copy is None:
            return
        carried.hold_back(topic, facts.had(topic))
        carried.stop(self.carrier.broker, copy)
        for _ in range(2):
            for name, told in facts.all_facts(copy).items():
                carried.learn(self.home.broker, topic, name, told, higher=False, stored=lambda: claim(topic))
            self.home.turn()
        self._check(topic)
        self._check(copy)
        # The carrier gives out the messages that the copy has and the home has lost.
        lacking = _minus(facts.had(copy), facts.had(topic))
        carried.allow(self.carrier.broker, copy, lacking)
        self.carrier.turn()
        for _ in range(40):
            owed = [one.owed(0, EVERYTHING) for one in copy.channels.values()]
            if not any(facts.within_all(ranges, lacking) for ranges in owed):
                break
            self._drain(self.carrier)
        carried.stop(self.carrier.broker, copy)
        self.carrier.checkpoint(copy)
        if not carried.detach(self.carrier.broker, copy):
            raise BrokenPromise(f"still in flight: {carried.in_flight(copy)}")
        self.copy = None
        carried.give_out(self.home.broker, topic, {})
        self.home.turn()
        self.home.sync(topic)
        self.home.checkpoint(topic)
        self.stream()
        forget_here(self.carrier.data, COPY)
        self.deeds["returned"] = self.deeds.get("returned", 0) + 1

    # --- promises ---

    def _check(self, topic: Topic) -> None:
        """Check facts: a finished message was finished by a consumer, or published before the channel."""
        for name, told in facts.all_facts(topic).items():
            for body in _bodies(topic, told.finished):
                owed = any(one.body == body and name in one.channels for one in self.sent)
                if owed and body not in self.done.get(name, ()):
                    raise BrokenPromise(f"{body!r} is told as finished on {name}, and nobody has finished it")

    def _drain(self, node: Machine) -> None:
        for _ in range(2):
            node.advance(30)
        for name in list(node.topic(NAME).channels):
            channel = node.topic(NAME).channels[name]
            consumer, outlet = node.subscribe(channel, 1000)
            while given := outlet.taken():
                for message_id, _, body in given:
                    self._given(name, body)
                    if node.answer(consumer, b"FIN", message_id):
                        raise BrokenPromise(f"FIN of {body!r} was refused")
                    self.done.setdefault(name, set()).add(body)
            node.broker.leave(consumer)

    def run(self, steps: int = 60) -> None:
        """Play a history, heal everything, and check that nothing is missing. Raises BrokenPromise."""
        self.create()
        events = [self.publish] * 8 + [self.consume] * 8 + [self.checkpoint] * 4 + [self.create, self.die]
        events += [self.carry] * 2 + [self.crash_carrier, self.return_home, self.empty]
        for _ in range(steps):
            self.rng.choice(events)()
        self.return_home()
        for node in (self.home, self.carrier):
            if node is not None and NAME in node.broker.topics:
                self._drain(node)
        for one in self.sent:
            for name in one.channels:
                if one.body not in self.done.get(name, ()):
                    raise BrokenPromise(f"{one.body[:20]!r} was never given to {name}")
        if self.again and not self.crashes and not self.both:
            raise BrokenPromise(f"{self.again} were given again that were finished")


def _bodies(topic: Topic, ranges: list[tuple[int, int]]) -> set[bytes]:
    found = set()
    for start, end in ranges:
        seq = start
        while seq < min(end, topic.log.next_seq):
            block = topic.log.read(seq, end)
            if block is None:
                break
            if isinstance(block, Block):
                found |= {block.frames(one, one + 1)[34:] for one in range(seq, min(end, block.next))}
                seq = block.next
            else:
                seq = block.end
    return found


def _minus(ranges: list[tuple[int, int]], others: list[tuple[int, int]]) -> list[tuple[int, int]]:

    return without(ranges, others)
