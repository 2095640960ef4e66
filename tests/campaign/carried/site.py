"""Several nodes, and the connections between them: bytes that are moved, held up and cut at any place."""

import random
from dataclasses import dataclass, field

from nsqd.replication.choosing import Appointed, Candidate, KeeperPatience, replaced
from nsqd.replication.fellow_hears import FellowHears
from nsqd.replication.frames import FellowHello
from nsqd.replication.framing import FrameReader, encode
from nsqd.replication.home_link import HomeLink, run_reads
from nsqd.replication.keeper import KeeperLink
from tests.campaign.carried.node import DATA, SECOND, CarryingNode
from tests.support.simulated_disk import SimulatedDisk

WALL = 1_700_000_000 * SECOND
PATIENCE = 120 * SECOND


@dataclass
class Line:
    """A connection of a home to a keeper, with what is on its way."""

    home: int
    keeper: int
    link: HomeLink
    kept: KeeperLink
    out: bytearray = field(default_factory=bytearray)
    back: bytearray = field(default_factory=bytearray)


class CarryingSite:
    """See the module."""

    def __init__(self, count: int, rng: random.Random, *, strict: bool, replicas: int = 1) -> None:
        self.rng, self.strict, self.replicas = rng, strict, replicas
        self.now = WALL
        self.step = SECOND // 2
        self.disks: dict[int, SimulatedDisk] = {number: SimulatedDisk(DATA) for number in range(1, count + 1)}
        self.nodes: dict[int, CarryingNode] = {}
        self.lines: list[Line] = []
        self.patience: dict[int, KeeperPatience] = {}
        # Nodes that nobody reaches, and pairs of which the second hears nothing of the first.
        self.alone: set[int] = set()
        self.deaf: set[tuple[int, int]] = set()
        # Keepers that take next to nothing in.
        self.slow: set[int] = set()
        for number in self.disks:
            self.start(number)

    # --- nodes ---

    def start(self, number: int) -> None:
        ahead = self.rng.choice((0, 0, 0, 3600 * SECOND, -3600 * SECOND))
        self.nodes[number] = CarryingNode(
            number,
            self.disks[number],
            self.now,
            strict=self.strict,
            ahead=ahead,
            # Whom a home chooses depends on it.
            draw=self.rng.randbytes,
            replicas=self.replicas,
        )
        self.patience[number] = KeeperPatience(PATIENCE)

    def end(self, number: int, disk: SimulatedDisk) -> None:
        """The process is gone, and this is what it leaves."""
        for line in [one for one in self.lines if number in (one.home, one.keeper)]:
            self.cut(line, dead=number)
        del self.nodes[number]
        self.disks[number] = disk

    def kill(self, number: int) -> None:
        self.end(number, self.disks[number].killed())

    def power_cut(self, number: int) -> None:
        self.end(number, self.disks[number].after_power_cut(self.rng))

    def lose_disk(self, number: int) -> None:
        self.end(number, SimulatedDisk(DATA))

    # --- the network ---

    def reach(self, a: int, b: int) -> bool:
        return not {a, b} & self.alone

    def cut(self, line: Line, dead: int = 0) -> None:
        """The connection is gone; some of what was on its way still arrives."""
        self.lines.remove(line)
        if line.keeper != dead:
            if self.reach(line.home, line.keeper):
                line.kept.receive(bytes(line.out[: self.rng.randint(0, len(line.out))]))
            line.kept.closed()
        if line.home != dead:
            line.link.end("cut")
            self.nodes[line.home].coming.went(line.link.appointed.address, self.now)

    def choose(self) -> None:
        """Each home appoints, and connects to whom it has appointed and can reach."""
        for number, node in self.nodes.items():
            appointments, patience = node.file.appointments, self.patience[number]
            linked = {line.keeper for line in self.lines if line.home == number and not line.link.visit}
            for one in appointments.current:
                if int(one.address[1:].partition(":")[0]) in linked:
                    patience.linked(one.address)
                else:
                    patience.away(one.address, self.now)
            candidates = [
                Candidate(other.address, other.identity.hex(), keeps=not other.broker.draining)
                for other in self.nodes.values()
                if other is not node and self.reach(number, other.number)
            ]
            me = Candidate(node.address, node.identity.hex())
            before = list(appointments.current)
            replaced(me, candidates, self.replicas, appointments, patience, self.now)
            if appointments.current != before:
                node.file.save()
                node.home.addresses = {one.address for one in appointments.current}
                node.home.say_who_keeps()
            for line in [one for one in self.lines if one.home == number]:
                known = appointments.former if line.link.visit else appointments.current
                if line.link.appointed not in known:
                    self.cut(line)
            for one in appointments.current:
                self._connect(node, one)
            today = {one.address for one in appointments.current}
            for one in appointments.former:
                if one.address not in today:
                    self._connect(node, one, visit=True)

    def _connect(self, node: CarryingNode, appointed: Appointed, *, visit: bool = False) -> None:
        keeper = int(appointed.address[1:].partition(":")[0])
        there = self.nodes.get(keeper)
        if there is None or not self.reach(node.number, keeper):
            return
        if any(line.home == node.number and line.keeper == keeper for line in self.lines):
            return
        link = HomeLink(node.home, appointed, self.now, visit=visit)
        self.lines.append(Line(node.number, keeper, link, KeeperLink(there.keeping)))

    def move(self) -> None:
        """Some of what is on its way arrives."""
        for line in list(self.lines):
            if line in self.lines:
                self._move(line)

    def _move(self, line: Line, *, all_of_it: bool = False) -> None:
        link, kept, rng = line.link, line.kept, self.rng
        home, keeper = self.nodes[line.home], self.nodes[line.keeper]
        run_reads(link, home.disk, self.now)
        line.out += b"".join(link.flush(self.now))
        if self.reach(line.home, line.keeper) and (line.home, line.keeper) not in self.deaf:
            size = (
                len(line.out) if all_of_it else rng.choice((0, rng.randint(0, len(line.out)), len(line.out)))
            )
            if line.keeper in self.slow:
                size = min(size, rng.choice((0, 40, 400)))
            data = bytes(line.out[:size])
            del line.out[:size]
            if data:
                kept.receive(data)
        self._work(kept, keeper)
        line.back += b"".join(kept.out)
        kept.out = []
        if self.reach(line.home, line.keeper) and (line.keeper, line.home) not in self.deaf:
            size = len(line.back) if all_of_it else rng.choice((0, len(line.back)))
            data = bytes(line.back[:size])
            del line.back[:size]
            if data and not link.closing:
                link.receive(data, self.now)
        link.tick(self.now)
        home.turn()
        if link.closing or kept.closing:
            if link.refused:
                self.patience[line.home].refused(link.appointed.address, self.now)
            self.cut(line)

    def _ask_fellows(self, node: CarryingNode) -> None:
        """A keeper asks the others of a home that is gone; what one hears the other has heard."""
        for home, address in node.fellowship.to_ask(self.now):
            number = int(address[1:].partition(":")[0])
            there = self.nodes.get(number)
            deaf = {(node.number, number), (number, node.number)} & self.deaf
            if there is None or deaf or not self.reach(node.number, number):
                node.fellowship.silent(home, address)
                continue
            hello = FellowHello(node.identity, node.number, node.address, home)
            link = KeeperLink(there.keeping)
            link.receive(b"".join(map(encode, (hello, *node.fellowship.says(home, self.now)))))
            hears = FellowHears()
            assert all(hears.take(frame) for frame in FrameReader().feed(b"".join(link.out)))
            node.fellowship.heard(home, address, hears.copies)
            node.turn()
            there.turn()

    def _work(self, kept: KeeperLink, keeper: CarryingNode) -> None:
        while jobs := kept.jobs():
            for job in jobs:
                error = None
                try:
                    job.run(keeper.disk)
                except OSError as failed:
                    error = failed
                kept.ended(job, error)

    def settle(self) -> None:
        """Nothing is held up any more."""
        for _ in range(100):
            before = [(line.link.out.sent, line.link.out.written) for line in self.lines]
            for line in list(self.lines):
                if line in self.lines:
                    self._move(line, all_of_it=True)
            if before == [(line.link.out.sent, line.link.out.written) for line in self.lines]:
                return

    # --- time ---

    def advance(self, seconds: float) -> None:
        """Time passes, a moment at a time."""
        until = self.now + int(seconds * SECOND)
        while self.now < until:
            self.now = min(until, self.now + self.step)
            for node in list(self.nodes.values()):
                node.advance(self.now)
                self._ask_fellows(node)
            self.choose()
            self.move()
            if self.rng.random() < 0.5:
                for node in list(self.nodes.values()):
                    node.checkpoint()
