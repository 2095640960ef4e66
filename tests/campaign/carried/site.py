"""Several nodes and the connections between them, whose bytes are moved, held up and cut at any place."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

from nsqd.replication.choosing import Appointed, Candidate, KeeperPatience, replaced
from nsqd.replication.fellow_hears import FellowHears
from nsqd.replication.frames import FellowHello
from nsqd.replication.framing import FrameReader, encode
from nsqd.replication.home_link import HomeLink
from nsqd.replication.keeper import KeeperLink
from nsqd.server.replication.left_behind import NotTold
from tests.campaign.carried.departing import Killed, Leaving, SiteLinking, Standing, begin_again
from tests.campaign.carried.node import DATA, SECOND, CarryingNode
from tests.support.jobs import run_all
from tests.support.simulated_disk import SimulatedDisk

WALL = 1_700_000_000 * SECOND
PATIENCE = 120 * SECOND


@dataclass
class Line:
    """A connection of a home to a keeper, with the bytes on their way."""

    home: int
    keeper: int
    link: HomeLink
    kept: KeeperLink
    out: bytearray = field(default_factory=bytearray)
    back: bytearray = field(default_factory=bytearray)
    # The hand-over that waits for it; *apart* says that the logs are not the node's own.
    linking: SiteLinking | None = None
    apart: bool = False


class CarryingSite:
    """A site of several nodes."""

    def __init__(self, count: int, rng: random.Random, *, strict: bool, replicas: int = 1) -> None:
        self.rng, self.strict, self.replicas = rng, strict, replicas
        self.now = WALL
        self.step = SECOND // 2
        self.disks: dict[int, SimulatedDisk] = {number: SimulatedDisk(DATA) for number in range(1, count + 1)}
        self.nodes: dict[int, CarryingNode] = {}
        self.lines: list[Line] = []
        self.patience: dict[int, KeeperPatience] = {}
        # The identity of each node at its last start.
        self.identities: dict[int, bytes] = {}
        # Nodes that nobody reaches, and pairs of nodes whose second gets nothing from the first.
        self.alone: set[int] = set()
        self.deaf: set[tuple[int, int]] = set()
        # Keepers that receive only a few bytes at a time.
        self.slow: set[int] = set()
        # By node: connections for logs of other homes that it hands on.
        self.apart: dict[int, list[SiteLinking]] = {}
        # (identity of the home, address, number) of each keeper that another node has appointed for it.
        self.successors: set[tuple[bytes, str, int]] = set()
        # Nodes to be killed in one of their next disk calls, with the number of calls until then.
        self.armed: dict[int, int] = {}
        self.on_killed: Callable[[int], None] = self.kill
        self.on_started: Callable[[int], None] = lambda _number: None
        self._passes = False
        for number in self.disks:
            self.start(number)

    # --- nodes ---

    def start(self, number: int) -> bool:
        """Start a node; return whether it serves: a handed-over one does only after its taker was told."""
        ahead = self.rng.choice((0, 0, 0, 3600 * SECOND, -3600 * SECOND))
        disk = self.disks[number]
        try:
            self.nodes[number] = CarryingNode(
                number,
                disk,
                self.now,
                strict=self.strict,
                ahead=ahead,
                # The identity affects which keepers a home chooses.
                draw=self.rng.randbytes,
                replicas=self.replicas,
                begins=lambda reservation: begin_again(
                    disk, reservation, number, self.nodes, self.reach, self.rng
                ),
            )
        except NotTold:
            self.disks[number] = disk.killed()
            return False
        self.patience[number] = KeeperPatience(PATIENCE)
        self.identities[number] = self.nodes[number].identity
        node, apart = self.nodes[number], []
        self.apart[number] = apart
        named = tuple(f"n{other}:4150" for other in self.disks)
        node.standing = Standing(node, self.replicas, PATIENCE, named, lambda: self._listed(number), apart)
        self.on_started(number)
        return True

    def _listed(self, number: int) -> list[SimpleNamespace]:
        """Return the nodes that nsqlookupd lists to a node."""
        return [
            SimpleNamespace(
                tcp_address=node.address,
                data_path=node.identity.hex(),
                topology_zone="",
                hostname="",
                keeps=True,
            )
            for node in self.nodes.values()
            if self.reach(number, node.number)
        ]

    def leave(self, number: int, to: str) -> None:
        """Let a node leave permanently and hand over to *to*, or to the best taker."""
        node = self.nodes[number]
        if node.leaving is None:
            node.leaving = Leaving(node, lambda: self._takers(number), self.apart[number])
        node.leaving.begin(to)

    def _takers(self, number: int) -> list[str]:
        known = [line for line in self.lines if line.home == number and not (line.link.visit or line.apart)]
        best = [line.link.appointed.address for line in known if line.link.is_filled]
        others = [node.address for node in self.nodes.values() if node.number != number]
        return list(dict.fromkeys((*best, *others)))

    def arm(self, number: int, calls: int) -> None:
        """Kill the process of a node in its *calls*-th disk call from now on, while time passes."""
        self.armed[number] = calls
        disk = self.disks[number]

        def before(_call: object) -> None:
            if not self._passes or self.disks.get(number) is not disk or number not in self.armed:
                return
            node = self.nodes.get(number)
            works = () if node is None else (node.leaving, node.standing)
            if not all(one.loop.may_be_killed for one in works if one is not None):
                return
            self.armed[number] -= 1
            if self.armed[number] <= 0:
                del self.armed[number]
                raise Killed(number)

        disk.before_call = before

    def end(self, number: int, disk: SimulatedDisk) -> None:
        """End a process; *disk* is what it leaves."""
        self.armed.pop(number, None)
        for line in [one for one in self.lines if number in (one.home, one.keeper)]:
            self.cut(line, dead=number)
        self._give_up(self.nodes[number])
        self.apart.pop(number, None)
        del self.nodes[number]
        self.disks[number] = disk

    def close(self) -> None:
        """End what the nodes still run."""
        for node in self.nodes.values():
            self._give_up(node)

    @staticmethod
    def _give_up(node: CarryingNode) -> None:
        for one in (node.leaving, node.standing):
            if one is not None:
                one.end()

    def kill(self, number: int) -> None:
        self.end(number, self.disks[number].killed())

    def power_cut(self, number: int) -> None:
        self.end(number, self.disks[number].after_power_cut(self.rng))

    def lose_disk(self, number: int) -> None:
        self.end(number, SimulatedDisk(DATA))
        del self.identities[number]

    # --- the network ---

    def reach(self, a: int, b: int) -> bool:
        return not {a, b} & self.alone

    def cut(self, line: Line, dead: int = 0) -> None:
        """Cut a connection; some of the bytes on their way still arrive."""
        self.lines.remove(line)
        if line.home != dead:
            line.out += b"".join(line.link.flush(self.now)) if self.rng.random() < 0.5 else b""
            line.link.end("cut")
            if not line.apart:
                self.nodes[line.home].coming.went(line.link.appointed.address, self.now)
            if line.linking is not None:
                line.linking.ended()
            if line.apart:
                appointed = line.link.appointed
                self.successors.add((line.link.home.identity, appointed.address, appointed.number))
        elif line.apart:
            # Take the noted appointments, because the number of a link rises when it begins another copy.
            identity = line.link.home.identity
            noted = self.nodes[line.home].carrier.successors.of(identity)
            self.successors.update((identity, it.address, it.number) for it in noted)
        if line.keeper != dead:
            # The keeper may be killed by what it receives here.
            if self.reach(line.home, line.keeper):
                line.kept.receive(bytes(line.out[: self.rng.randint(0, len(line.out))]))
            line.kept.closed()

    def choose(self) -> None:
        """Let each home appoint keepers, and connect it to those that it can reach."""
        for number, node in self.nodes.items():
            appointments, patience = node.file.appointments, self.patience[number]
            own = [line for line in self.lines if line.home == number and not line.apart]
            linked = {line.keeper for line in own if not (line.link.visit or line.link.keeper_leaves)}
            for one in appointments.current:
                if int(one.address[1:].partition(":")[0]) in linked:
                    patience.linked(one.address)
                else:
                    patience.away(one.address, self.now)
            candidates = [
                Candidate(other.address, other.identity.hex())
                for other in self.nodes.values()
                if other is not node and self.reach(number, other.number)
            ]
            for line in own:
                if line.link.keeper_leaves and not line.link.visit:
                    patience.refused(line.link.appointed.address, self.now)
            me = Candidate(node.address, node.identity.hex())
            before = list(appointments.current)
            if node.chooses:
                replaced(me, candidates, self.replicas, appointments, patience, self.now)
            if appointments.current != before:
                node.file.save()
                node.home.addresses = {one.address for one in appointments.current}
                node.home.say_who_keeps()
            left = "" if node.leaving is None else node.leaving.left
            today = {one.address for one in appointments.current}
            former = [one for one in appointments.former if one.address not in today]
            for line in own:
                known = former if line.link.visit else appointments.current
                if line.link.appointed not in known or line.link.appointed.address == left:
                    self.cut(line)
            for one in appointments.current:
                if one.address != left:
                    self._connect(node, one)
            for one in former:
                self._connect(node, one, visit=True)
            self._connect_takers(node)

    def _connect_takers(self, node: CarryingNode) -> None:
        """Give connections to nodes that hand over, as far as the takers are reachable."""
        linking = None if node.leaving is None else node.leaving.linking
        for line in [one for one in self.lines if one.home == node.number]:
            if line.apart:
                if line.linking is not None and line.linking.over:
                    self.cut(line)
            elif linking is None:
                line.linking = None
            elif line.linking is not linking and line.link.appointed.address == linking.appointed.address:
                line.linking = linking
                linking.connected(line.link)
        wanted = self.apart[node.number]
        wanted[:] = [one for one in wanted if not one.over]
        for one in wanted:
            if one.begun and one.connection is None:
                self._connect(node, one.appointed, apart=one)

    def _connect(
        self,
        node: CarryingNode,
        appointed: Appointed,
        *,
        visit: bool = False,
        apart: SiteLinking | None = None,
    ) -> None:
        keeper = int(appointed.address[1:].partition(":")[0])
        there = self.nodes.get(keeper)
        if there is None or not self.reach(node.number, keeper):
            return
        if apart is not None:
            link = HomeLink(apart.home, appointed, self.now, visit=apart.visit)
            self.lines.append(
                Line(node.number, keeper, link, KeeperLink(there.keeping), linking=apart, apart=True)
            )
            apart.connected(link)
            self.successors.add((apart.home.identity, appointed.address, link.appointed.number))
            return
        if any(line.home == node.number and line.keeper == keeper and not line.apart for line in self.lines):
            return
        link = HomeLink(node.home, appointed, self.now, visit=visit)
        self.lines.append(Line(node.number, keeper, link, KeeperLink(there.keeping)))

    def move(self) -> None:
        """Let some of the bytes on their way arrive."""
        for line in list(self.lines):
            if line in self.lines:
                self._move(line)

    def _move(self, line: Line, *, all_of_it: bool = False) -> None:
        link, kept, rng = line.link, line.kept, self.rng
        home, keeper = self.nodes[line.home], self.nodes[line.keeper]
        run_all(link.jobs, home.disk, lambda job, error: link.ended(job, error, self.now))
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
            if link.refused and not line.apart:
                self.patience[line.home].refused(link.appointed.address, self.now)
            self.cut(line)

    def _ask_fellows(self, node: CarryingNode) -> None:
        """Let a keeper of a lost home ask the others and exchange what they know."""
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
            node.fellowship.heard(home, address, hears.copies, self.now)
            node.turn()
            there.turn()

    def _work(self, kept: KeeperLink, keeper: CarryingNode) -> None:
        run_all(kept.jobs, keeper.disk, kept.ended)

    def settle(self) -> None:
        """Let all bytes arrive."""
        for _ in range(100):
            before = [(line.link.out.sent, line.link.out.written) for line in self.lines]
            for line in list(self.lines):
                if line in self.lines:
                    self._move(line, all_of_it=True)
            if before == [(line.link.out.sent, line.link.out.written) for line in self.lines]:
                return

    # --- time ---

    def advance(self, seconds: float) -> None:
        """Let time pass, in steps."""
        until = self.now + int(seconds * SECOND)
        while self.now < until:
            self.now = min(until, self.now + self.step)
            self._passes = bool(self.armed)
            try:
                self._moment()
            except Killed as killed:
                self._passes = False
                self.on_killed(killed.args[0])
            finally:
                self._passes = False

    def _moment(self) -> None:
        for node in list(self.nodes.values()):
            node.advance(self.now)
            self._ask_fellows(node)
        self.choose()
        self.move()
        if self.rng.random() < 0.5:
            for node in list(self.nodes.values()):
                node.checkpoint()
