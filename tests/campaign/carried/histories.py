"""Random histories of several nodes, and what must hold at the end of each."""

import random
from collections import Counter
from pathlib import Path
from typing import Final

from nsqd.log.layout import NotALog, decode_file_header
from nsqd.replication import handed_over
from nsqd.replication.carried_copy import CarriedCopy
from nsqd.replication.serving import CopyPhase
from tests.campaign.carried.node import DATA, SECOND, CarryingNode, Reader
from tests.campaign.carried.operator import EVENTS, Operator
from tests.campaign.carried.promises import Promise, Promises
from tests.campaign.carried.site import CarryingSite
from tests.support.simulated_disk import SimulatedDisk

TOPICS: Final = ("t", "u")
CHANNELS: Final = ("a", "b")


def checkpoints_in(disk: SimulatedDisk, folder: Path) -> list[bytes]:
    """Return the checkpoints of a copy, which say to which channels it is owed."""
    try:
        names = disk.names(folder)
    except FileNotFoundError:
        return []
    return [disk.read_file(folder / name) for name in ("checkpoint.0", "checkpoint.1") if name in names]


def is_beginning(file: bytes) -> bool:
    """Say whether the file is the first of a log, which contains the topic's notes from the beginning."""
    try:
        return not decode_file_header(file).notes
    except NotALog:
        return False


def bodies_in(
    disk: SimulatedDisk, harmed: dict[Path, list[bytes]] | None = None, *, untold: bool = False
) -> bytes:
    """Return the contents of all log files of a disk in one piece, in which a body can be searched.

    Logs that were handed over are left out; with *untold* only those whose taker has confirmed that, because
    until then no start removes them. A copy without a checkpoint and without the beginning of its log does
    not count yet, because nothing says to which channels it is owed. A copy in *harmed* no longer counts
    while its checkpoints are those that a power cut has left.
    """
    found: list[bytes] = []

    def walk(folder: Path) -> None:
        names = disk.names(folder)
        note = handed_over.load(disk, folder) if handed_over.FILE_NAME in names else None
        if note is not None and (note.confirmed or not untold):
            names = [name for name in names if name == "carried" and folder == DATA]
        told = {"checkpoint.0", "checkpoint.1"} & set(names) or any(
            is_beginning(disk.read_file(folder / name)) for name in names if name.endswith(".log")
        )
        if folder.name.endswith(".topic") and "carried" in folder.parts:
            left = (harmed or {}).get(folder)
            if not told or (left is not None and left == checkpoints_in(disk, folder)):
                return
        for name in names:
            path = folder / name
            if name.endswith((".log", ".new")):
                found.append(disk.read_file(path))
            elif name.endswith(".topic") or name == "carried" or "." not in name:
                try:
                    walk(path)
                except OSError:
                    continue

    walk(DATA)
    return b"\n".join(found)


class CarriedHistory:
    """One seed. With *power* disks also lose unsynced bytes; with *people* operators also act."""

    def __init__(
        self,
        seed: int,
        *,
        strict: bool = False,
        power: bool = False,
        people: bool = False,
        replicas: int = 1,
    ) -> None:
        self.rng = random.Random(seed)
        self.power = power
        self.site = CarryingSite(
            self.rng.randint(replicas + 1, 4), self.rng, strict=strict, replicas=replicas
        )
        self.told = Promises()
        self.people = Operator(self.site, self.rng, self.told)
        self.site.on_killed = self._kill
        self.weights = dict(self.EVENTS) | (dict.fromkeys(EVENTS, 1) if people else {})
        self.deeds: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.trace: list[str] = []
        self.count = 0
        self._readers: list[tuple[CarryingNode, Reader]] = []
        # Identities of the nodes that lost power since the last step.
        self._lost_power: set[bytes] = set()
        # By node: copies whose checkpoints a power cut has changed, with the checkpoints that it left.
        self._harmed: dict[int, dict[Path, list[bytes]]] = {}

    EVENTS: Final = {
        "publish": 14,
        "consume": 12,
        "wait": 10,
        "subscribe": 3,
        "leave": 1,
        "make_channel": 1,
        "kill": 1,
        "restart": 3,
        "part": 1,
        "long": 2,
        "compact": 1,
        "sync": 1,
        "lose": 1,
    }

    def run(self, steps: int = 80) -> "CarriedHistory":
        for node in self.site.nodes.values():
            for name in TOPICS:
                if self.rng.random() < 0.7:
                    node.channel(name, self.rng.choice(CHANNELS))
        self.site.advance(4)
        self.site.settle()
        for event in self.rng.choices(list(self.weights), list(self.weights.values()), k=steps):
            self.trace.append(event)
            self.deeds[event] += 1
            if event in EVENTS:
                self.people.do(event, TOPICS)
            else:
                getattr(self, event)()
            self._see_off()
        return self

    # --- what happens ---

    def _node(self) -> CarryingNode | None:
        nodes = list(self.site.nodes.values())
        return self.rng.choice(nodes) if nodes else None

    def publish(self) -> None:
        node, name = self._node(), self.rng.choice(TOPICS)
        if node is None:
            return
        for _ in range(self.rng.choice((1, 1, 5, 20))):
            self.count += 1
            body = b"<%d>" % self.count
            wait = node.publish(name, body)
            if wait is None:
                self.told.refused += 1
                break
            channels = set(node.broker.topics[name].channels)
            self.told.pending[body] = Promise(name, node.identity, channels, free=not channels)

            def tell(reason: str, body: bytes = body) -> None:
                if not reason:
                    self.told.answered(body)

            wait.tells.append(tell)  # type: ignore[attr-defined]
        node.turn()
        self.site.move()

    def subscribe(self) -> None:
        node = self._node()
        if node is None:
            return
        name = self.rng.choice(TOPICS)
        topic = node.broker.topics.get(name)
        if topic is not None and topic.channels and not node.broker.leaving:
            channel = self.rng.choice(sorted(topic.channels))
            self._readers.append((node, node.read(name, channel, self.rng.choice((1, 3, 20)))))

    def make_channel(self) -> None:
        node = self._node()
        if node is not None and not node.broker.leaving:
            node.channel(self.rng.choice(TOPICS), self.rng.choice(CHANNELS))

    def consume(self) -> None:
        for node, reader in list(self._readers):
            if self.site.nodes.get(node.number) is not node:
                self._readers.remove((node, reader))
                continue
            if reader not in node.readers:
                # Its channel was deleted, which also ended its connection.
                self._readers.remove((node, reader))
                continue
            reader.take()
            for message in self.rng.sample(reader.has, self.rng.randint(0, min(6, len(reader.has)))):
                self._answer(node, reader, message, "FIN" if self.rng.random() < 0.85 else "REQ")
            reader.take()

    def _answer(self, node: CarryingNode, reader: Reader, message: tuple[bytes, bytes], verb: str) -> None:
        theirs = int(message[0], 16) >> 54 != node.number
        if node.answer(reader, message, verb) and verb == "FIN":
            self.told.finished(reader.topic, reader.channel, message[1], carried=theirs)

    def leave(self) -> None:
        if self._readers:
            node, reader = self._readers.pop(self.rng.randrange(len(self._readers)))
            if self.site.nodes.get(node.number) is node and reader in node.readers:
                node.leave(reader)

    def wait(self) -> None:
        self.site.advance(self.rng.choice((0.5, 1, 3)))

    def long(self) -> None:
        self.site.step = SECOND
        self.site.advance(self.rng.choice((20, 40)))
        self.site.step = SECOND // 2

    def compact(self) -> None:
        node = self._node()
        if node is not None:
            node.compact(self.rng.choice(TOPICS))

    def sync(self) -> None:
        node = self._node()
        if node is not None:
            node.sync()

    def kill(self) -> None:
        node = self._node()
        if node is not None:
            self._kill(node.number)

    def _kill(self, number: int) -> None:
        """Kill a process, or cut the power of its machine."""
        self.told.learned += self.site.nodes[number].coming.learned
        if self.power and self.rng.random() < 0.5:
            left = self.site.disks[number].after_power_cut(self.rng)
            if self._is_safe(number, left):
                self._lost_power |= self.people.names_of(self.site.nodes[number].identity)
                self._harmed[number] = self._harmed_of(number, left)
                self.site.end(number, left)
                return
        self.site.kill(number)

    def _see_off(self) -> None:
        """End nodes that were handed over, mostly with their volume; the other nodes stay."""
        for number, node in list(self.site.nodes.items()):
            leaving = node.leaving
            if leaving is None or number not in self.site.nodes:
                continue
            self.deeds[f"hand-over {leaving.state}"] += 1
            if leaving.state == "handed over":
                only_here = self._only_here(number)
                # Another home may have lost its last messages at this moment, and a copy of them is here.
                # Losing the disk with that copy would be a second loss.
                alone = self._only_here(number, untold=True)
                if any(self.told.made[body].home not in self._lost_power for body in alone):
                    self.wrong.append(f"node {number} was handed over, and has what nobody else has")
                if self.rng.random() < 0.7 and not only_here:
                    self.site.lose_disk(number)
                else:
                    self.site.kill(number)
            elif leaving.state == "waiting" and node.broker.leaving:
                # This node gives the rest of an older copy to nobody; after a restart it is a keeper again.
                if self.rng.random() < 0.3:
                    self.site.kill(number)
            elif leaving.state in ("failed", "nobody"):
                if self.rng.random() < 0.5:
                    leaving.cancel()
                else:
                    leaving.begin("")
        self._lost_power.clear()

    def lose(self) -> None:
        """Lose a disk permanently."""
        number = self.rng.choice(sorted(self.site.disks))
        if not self._is_safe(number, None):
            return
        if number in self.site.nodes:
            self.site.lose_disk(number)
        else:
            self.site.disks[number] = SimulatedDisk(DATA)

    def _is_safe(self, number: int, left: SimulatedDisk | None) -> bool:
        """Say whether no last copy of a message would be lost, which would be one fault too many."""
        return not self._only_here(number, left)

    def _only_here(
        self, number: int, left: SimulatedDisk | None = None, *, untold: bool = False
    ) -> list[bytes]:
        """Return the open messages that would be lost with a disk, of which only *left* remains.

        Without *untold* a log that was handed over counts as the taker's before the taker has confirmed that.
        """
        open_ones = self.told.open()
        if not open_ones:
            return []
        disks = [(disk, self._harmed.get(one)) for one, disk in self.site.disks.items() if one != number]
        if left is not None:
            disks.append((left, self._harmed_of(number, left)))
        there = b"\n".join(bodies_in(disk, harmed, untold=untold) for disk, harmed in disks)
        return [body for body in open_ones if body not in there]

    def _harmed_of(self, number: int, left: SimulatedDisk) -> dict[Path, list[bytes]]:
        """Return the copies that a power cut harms, if it leaves *left* of a node's disk."""
        before, found = self.site.disks[number], dict(self._harmed.get(number, {}))
        copies = self.site.nodes[number].keeping.copies
        for identity in copies.identities():
            for appointment in copies.appointments(identity):
                for name in copies.topics(identity, appointment):
                    folder = copies.folder(identity, appointment, name).path
                    now = checkpoints_in(left, folder)
                    if now != checkpoints_in(before, folder):
                        found[folder] = now
        return found

    def restart(self) -> None:
        down = sorted(self.site.disks.keys() - self.site.nodes.keys())
        if down:
            self.site.start(self.rng.choice(down))

    def part(self) -> None:
        if self.site.alone or self.site.deaf or self.rng.random() < 0.3:
            self.site.alone.clear()
            self.site.deaf.clear()
        elif self.rng.random() < 0.7:
            self.site.alone = {self.rng.choice(sorted(self.site.disks))}
            for line in list(self.site.lines):
                if not self.site.reach(line.home, line.keeper) and self.rng.random() < 0.5:
                    self.site.cut(line)
        elif self.site.lines:
            line = self.rng.choice(self.site.lines)
            self.site.deaf = {self.rng.choice(((line.home, line.keeper), (line.keeper, line.home)))}

    # --- the end ---

    def heal(self) -> None:
        """Start all nodes, connect them, and let consumers of every channel take everything."""
        self.site.alone.clear()
        self.site.deaf.clear()
        for number in sorted(self.site.disks.keys() - self.site.nodes.keys()):
            self.site.start(number)
        for node, reader in self._readers:
            if self.site.nodes.get(node.number) is node and reader in node.readers:
                for message in list(reader.has):
                    node.answer(reader, message, "REQ")
                node.leave(reader)
        self._readers = []
        # This long, because a keeper that was away for longer than `--keeper-patience` is asked again after
        # twice that time and then has to be filled.
        for _ in range(40):
            for number in sorted(self.site.disks.keys() - self.site.nodes.keys()):
                self.site.start(number)
            self.people.mend()
            self.site.advance(10)
            self.site.settle()
            self._take_all()
            self._see_off()
            if not self.told.open() and not self._unsettled():
                break

    def _take_all(self) -> None:
        for node in self.site.nodes.values():
            if node.broker.leaving:
                continue
            for name, topic in list(node.broker.topics.items()):
                # A topic without channels gets one, as a new topic would from nsqlookupd.
                for channel in list(topic.channels) or CHANNELS[:1]:
                    reader = node.read(name, channel, 1000)
                    for _ in range(20):
                        new = reader.take()
                        if not new:
                            break
                        for message in new:
                            self._answer(node, reader, message, "FIN")
                    node.leave(reader)

    def _unsettled(self) -> list[str]:
        """Return copies that are in a wrong state for a healthy site, and departures that do not end."""
        found = [
            f"node {number} is on its way yet: {node.leaving.told}"
            for number, node in self.site.nodes.items()
            if node.leaving is not None and node.leaving.departure.under_way
        ]
        homes = {node.identity: node for node in self.site.nodes.values()}
        for node in self.site.nodes.values():
            for one in node.carrier:
                home = homes.get(one.identity)
                if (node.number, one.identity, one.serving.appointment) in self.people.cloned:
                    continue
                if home is not None and self._is_unheard_of(node, one, home):
                    continue
                number, whose = one.serving.appointment, one.identity.hex()[:4]
                what = f"node {node.number} has appointment {number} of {whose}"
                if home is None:
                    # The home is permanently gone: its copy must be carried, or kept by a stand-in.
                    stood_in = one.phase is CopyPhase.KEPT and node.carrier.is_here(one.identity)
                    if one.phase is not CopyPhase.CARRIED and not stood_in:
                        found.append(f"{what}, whose home is gone, {one.phase.value}")
                    continue
                today = {
                    (appointed.address, appointed.number) for appointed in home.file.appointments.current
                }
                if (node.address, one.serving.appointment) not in today:
                    found.append(f"{what}, an older one")
                elif one.phase is not CopyPhase.KEPT:
                    found.append(f"{what} {one.phase.value} beside its home")
        if len(homes) > self.site.replicas:
            few = [node.number for node in homes.values() if node.home.under_copied()]
            found += [f"node {number} is not copied" for number in few]
        return found

    def _is_unheard_of(self, node: CarryingNode, one: CarriedCopy, home: CarryingNode) -> bool:
        """Say whether the home cannot learn of this copy, because the node that stood in for it is lost.

        Messages that are left there are then delivered twice, as docs/replication.md says; it also says that
        nobody knows of copies in a copied data path. If another node that stood in exists, the home hears of
        the copy from it.
        """
        known = home.file.appointments
        named = {(it.address, it.number) for it in (*known.current, *known.former)}
        here = (node.address, one.serving.appointment)
        if (one.identity, *here) not in self.site.successors or here in named:
            return False
        copied = {number for number, identity, _ in self.people.cloned if identity == one.identity}
        knows = {
            other.number
            for other in self.site.nodes.values()
            for it in other.carrier.successors.of(one.identity)
            if here == (it.address, it.number)
        }
        if not knows or knows & copied:
            return True
        # Its former keeper may have handed it on and be gone; then the home hears of no node that knows.
        return not self._heard_of(one.identity, {address for address, _ in named}) & knows

    def _heard_of(self, identity: bytes, addresses: set[str]) -> set[int]:
        """Return the nodes that a home hears of, starting from *addresses*, through their appointments."""
        while True:
            there = [node for node in self.site.nodes.values() if node.address in addresses]
            more = {one.address for node in there for one in node.carrier.successors.of(identity)}
            if more <= addresses:
                return {node.number for node in there}
            addresses = addresses | more

    def _come_again(self) -> int:
        """Kill and restart all nodes; return how many finished messages are given out again."""
        before = self.told.again
        # Finished messages are noted within a second or two; successors hear of them within about five.
        self.site.advance(12 if self.site.successors else 3)
        self.site.settle()
        for node in self.site.nodes.values():
            node.checkpoint()
        for number in sorted(self.site.nodes):
            self.site.kill(number)
        for number in sorted(self.site.disks):
            self.site.start(number)
        self.site.advance(10)
        self.site.settle()
        self._take_all()
        return self.told.again - before

    def lost(self) -> list[str]:
        """Heal the site and return everything that is wrong at the end."""
        self.heal()
        found = self.told.lost() + self._unsettled() + self.wrong
        # Copies in a copied data path are given out there once more.
        exact = self.deeds["seek"] == 0 and not self.people.cloned
        if not found and exact and self.rng.random() < 0.25:
            self.deeds["all begun anew at the end"] += 1
            again = self._come_again()
            if again:
                found.append(f"{again} finished messages came again when all was well")
        found += [f"node {node.number}: {text}" for node in self.site.nodes.values() for text in node.broken]
        self.site.close()
        return found
