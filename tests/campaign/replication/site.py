"""Several nodes and the connections between them, whose bytes are moved, delayed and cut at any place."""

import random
from dataclasses import dataclass, field
from typing import Final

from nsqd.replication.frames import Holder
from nsqd.replication.link import PeerLink
from nsqd.replication.primary import ReplicaSettings
from tests.campaign.replication.node import DATA, SECOND, SimulatedNode
from tests.support.simulated_disk import SimulatedDisk

REPLACE_AFTER: Final = 60 * SECOND
RECONNECT: Final = SECOND // 2


@dataclass(eq=False)
class Line:
    """A connection: the links at both ends, and the bytes on their way."""

    connector: int
    acceptor: int
    near: PeerLink
    far: PeerLink
    out: bytearray = field(default_factory=bytearray)
    back: bytearray = field(default_factory=bytearray)


class Site:
    """All nodes, disks and connections of one history."""

    def __init__(self, nodes: int, rng: random.Random, settings: ReplicaSettings) -> None:
        self.rng = rng
        self.settings = settings
        self.now = 1_000_000 * SECOND
        self.step = SECOND // 2
        self.disks = {number: SimulatedDisk(DATA) for number in range(1, nodes + 1)}
        self.nodes: dict[int, SimulatedNode] = {}
        self.lines: list[Line] = []
        # Nodes that no other reaches, and pairs of nodes whose second gets nothing from the first.
        self.cut_off: set[int] = set()
        self.deaf: set[tuple[int, int]] = set()
        # Suspended nodes.
        self.suspended: set[int] = set()
        # How often each node has changed its address.
        self.moves: dict[int, int] = dict.fromkeys(self.disks, 0)
        # Days that have passed beside the simulated seconds.
        self.days = 0
        self._unreachable: dict[tuple[int, bytes], int] = {}
        for number in self.disks:
            self.start(number)

    # --- nodes ---

    def start(self, number: int) -> None:
        ahead = self.rng.choice((0, 0, 0, 3600 * SECOND, -3600 * SECOND))
        self.nodes[number] = SimulatedNode(
            number,
            self.disks[number],
            self.now,
            self.settings,
            address=f"n{number}-{self.moves[number]}:4150",
            ahead=ahead,
            draw=self.rng.randbytes,
            days=lambda: self.days,
        )

    def end(self, number: int, disk: SimulatedDisk) -> None:
        """End a process; *disk* is what it leaves."""
        for line in [one for one in self.lines if number in (one.connector, one.acceptor)]:
            self.cut(line, dead=number)
        self.suspended.discard(number)
        del self.nodes[number]
        self.disks[number] = disk

    def kill(self, number: int) -> None:
        self.end(number, self.disks[number].killed())

    def power_cut(self, number: int) -> None:
        self.end(number, self.disks[number].after_power_cut(self.rng))

    def lose_disk(self, number: int) -> None:
        if number in self.nodes:
            self.end(number, SimulatedDisk(DATA))
        else:
            self.disks[number] = SimulatedDisk(DATA)

    def node_with(self, identity: bytes) -> SimulatedNode | None:
        return next((one for one in self.nodes.values() if one.identity == identity), None)

    # --- the network ---

    def reach(self, a: int, b: int) -> bool:
        return not {a, b} & (self.cut_off | self.suspended)

    def cut(self, line: Line, dead: int = 0) -> None:
        """Cut a connection; some of the bytes on their way still arrive."""
        self.lines.remove(line)
        for number, link, data in (
            (line.acceptor, line.far, line.out),
            (line.connector, line.near, line.back),
        ):
            if number == dead:
                continue
            if self.reach(line.connector, line.acceptor) and self.rng.random() < 0.5 and not link.is_closed:
                link.receive(bytes(data[: self.rng.randint(0, len(data))]), self.now)
            link.end("cut")

    def choose(self) -> None:
        """Let each node choose replicas, and connect to the nodes that it wants."""
        for node in list(self.nodes.values()):
            if node.number in self.suspended:
                continue
            self._choose(node)
            for identity in node.replication.wanted_peers():
                self._connect(node, identity)
            wanted = node.replication.wanted_peers()
            for line in [one for one in self.lines if one.connector == node.number]:
                if line.near.peer and line.near.peer not in wanted:
                    self.cut(line)

    def _choose(self, node: SimulatedNode) -> None:
        replication = node.replication
        kept: list[bytes] = []
        for identity in replication.replicas:
            key = (node.number, identity)
            link = replication.link_to(identity)
            if link is not None and not link.peer_drains:
                self._unreachable.pop(key, None)
            since = self._unreachable.setdefault(key, self.now) if link is None else self.now
            if self.now - since < REPLACE_AFTER and not (link is not None and link.peer_drains):
                kept.append(identity)
        free = [
            one.identity
            for one in self.nodes.values()
            if one is not node
            and one.identity not in kept
            and self.reach(node.number, one.number)
            and not one.replication.is_decommissioning
        ]
        self.rng.shuffle(free)
        wanted = self.settings.replicas
        if replication.is_decommissioning:
            wanted = max(1, wanted)
        chosen = (kept + free)[: max(wanted, 0)]
        if not chosen:
            return
        if len(chosen) < len(replication.replicas):
            chosen += [one for one in replication.replicas if one not in chosen][: wanted - len(chosen)]
        for identity in chosen:
            if identity not in replication.replicas:
                self._unreachable.pop((node.number, identity), None)
        if chosen != replication.replicas:
            addresses = {one.identity: one.address for one in self.nodes.values()}
            replication.set_replicas(tuple(Holder(one, addresses.get(one, "")) for one in chosen))
            node.work()

    def _connect(self, node: SimulatedNode, identity: bytes) -> None:
        there = self.node_with(identity)
        if there is None or there is node or not self.reach(node.number, there.number):
            return
        if any((one.connector, one.acceptor) == (node.number, there.number) for one in self.lines):
            return
        near = node.link(self.now, connector=True, expected=identity)
        self.lines.append(Line(node.number, there.number, near, there.link(self.now, connector=False)))

    def move(self) -> None:
        """Let some of the bytes on their way arrive."""
        for line in list(self.lines):
            if line in self.lines:
                self._move(line)

    def _move(self, line: Line, *, all_of_it: bool = False) -> None:
        rng, now = self.rng, self.now
        near, far = line.near, line.far
        connector, acceptor = self.nodes[line.connector], self.nodes[line.acceptor]
        for node, link in ((connector, near), (acceptor, far)):
            if node.number not in self.suspended:
                run_jobs(node, link, now)
        line.out += b"".join(near.flush(now))
        line.back += b"".join(far.flush(now))
        if self.reach(line.connector, line.acceptor):
            for pair, link, data in (
                ((line.connector, line.acceptor), far, line.out),
                ((line.acceptor, line.connector), near, line.back),
            ):
                if pair in self.deaf or link.is_closed:
                    continue
                size = len(data) if all_of_it else rng.choice((0, rng.randint(0, len(data)), len(data)))
                got = bytes(data[:size])
                del data[:size]
                if got:
                    link.receive(got, now)
        for node in (connector, acceptor):
            if node.number not in self.suspended:
                node.work()
                node.turn()
        if line in self.lines and (near.is_closed or far.is_closed):
            # The last frames, such as a refusal, still arrive.
            line.out += b"".join(near.flush(now))
            line.back += b"".join(far.flush(now))
            if self.reach(line.connector, line.acceptor):
                if not far.is_closed:
                    far.receive(bytes(line.out), now)
                if not near.is_closed:
                    near.receive(bytes(line.back), now)
            line.out, line.back = bytearray(), bytearray()
            self.cut(line)

    def settle(self) -> None:
        """Let all bytes arrive."""
        quiet = 0
        for _ in range(60):
            before = [
                (line.near.sender.sent, line.near.sender.written, line.far.heard_ns) for line in self.lines
            ]
            for line in list(self.lines):
                if line in self.lines:
                    self._move(line, all_of_it=True)
            after = [
                (line.near.sender.sent, line.near.sender.written, line.far.heard_ns) for line in self.lines
            ]
            quiet = quiet + 1 if before == after else 0
            if quiet == 3:
                return

    # --- time ---

    def advance(self, seconds: float) -> None:
        """Let time pass, in steps."""
        until = self.now + int(seconds * SECOND)
        while self.now < until:
            self.now = min(until, self.now + self.step)
            for node in list(self.nodes.values()):
                if node.number not in self.suspended:
                    node.advance(self.now)
            self.choose()
            self.move()
            if self.rng.random() < 0.6:
                for node in list(self.nodes.values()):
                    if node.number not in self.suspended:
                        node.checkpoint()


def run_jobs(node: SimulatedNode, link: PeerLink, now: int) -> None:
    """Run the jobs of one link."""
    for _ in range(20):
        jobs = link.jobs()
        if not jobs:
            return
        for job in jobs:
            error: OSError | None = None
            try:
                job.run(node.disk)
            except OSError as failed:
                error = failed
            link.ended(job, error, now)
