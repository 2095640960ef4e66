"""Several nodes and the connections between them, whose bytes are moved, delayed and cut at any place."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from nsqd.replication.frames import VERSIONS, Holder
from nsqd.replication.link import PeerLink
from nsqd.replication.log_stream import ReplicaSettings
from tests.campaign.replication.node import DATA, SECOND, SimulatedNode, Surroundings
from tests.support.simulated_disk import SimulatedDisk

REPLACE_AFTER: Final = 60 * SECOND
BEGIN: Final = 1_000_000 * SECOND
# The lines of the secret file in each step of its rotation.
_OLD, _NEW = b"the secret of the simulated cluster", b"another secret of the simulated cluster"
SECRETS: Final = ((_OLD,), (_OLD, _NEW), (_NEW, _OLD), (_NEW,))


@dataclass(eq=False)
class Line:
    """A connection: the links at both ends, and the bytes on their way.

    When it is *half-open*, one end is gone and the other does not know it.
    """

    connector: int
    acceptor: int
    near: PeerLink
    far: PeerLink
    out: bytearray = field(default_factory=bytearray)
    back: bytearray = field(default_factory=bytearray)
    is_half_open: bool = False


class Site:
    """All nodes, disks and connections of one history."""

    def __init__(
        self, nodes: int, rng: random.Random, settings: ReplicaSettings, *, is_prompt: bool = False
    ) -> None:
        """A *prompt* site has exact clocks, and all bytes arrive in the moment in which they are sent."""
        self.rng = rng
        self.is_prompt = is_prompt
        self.events: Counter[str] = Counter()
        self.settings = settings
        self.now = BEGIN
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
        # Days that have passed in addition to the simulated seconds.
        self.days = 0
        # nsqlookupd names the address of another node now and then.
        self.lying = False
        # Called with a node and each message that it sends to a consumer: topic, channel, body.
        self.on_sent: Callable[[int, str, str, bytes], None] = lambda *_: None
        # Since when each node runs, and when it ended before.
        self.started: dict[int, int] = {}
        self.ended: dict[int, list[int]] = {}
        self.resumed: dict[int, int] = {}
        # The identity of the last start of each node.
        self.identities: dict[int, bytes] = {}
        self._unreachable: dict[tuple[int, bytes], int] = {}
        # Of each node: how fast its clock is, and how far it has jumped.
        self.rates: dict[int, float] = {}
        self.jumps: dict[int, int] = {}
        # How far each node has got with the rotation of the secret.
        self.stages: dict[int, int] = {}
        for number in self.disks:
            self.start(number)

    # --- nodes ---

    def start(self, number: int) -> None:
        rng = self.rng
        if number not in self.rates:
            self.rates[number] = 1.0 if self.is_prompt else rng.choice((0.9, 1.0, 1.0, 1.1))
        stages = [self.stages[one] for one in self.nodes] or [0]
        self.stages.setdefault(number, max(stages))
        around = Surroundings(
            self.settings,
            f"n{number}-{self.moves[number]}:4150",
            rng.choice((0, 0, 0, 3600 * SECOND, -3600 * SECOND)),
            rng.randbytes,
            lambda: self.days,
            lambda: SECRETS[self.stages[number]],
            VERSIONS[1] + (rng.random() < 0.3),
            self.events,
            lambda *message: self.on_sent(number, *message),
        )
        self.started[number] = self.now
        self.nodes[number] = node = SimulatedNode(number, self.disks[number], self.clock(number), around)
        self.identities[number] = node.identity

    def add(self, disk: SimulatedDisk) -> None:
        """Start a new node on this disk."""
        number = max(self.moves) + 1
        self.moves[number] = 0
        self.disks[number] = disk
        self.start(number)

    def clock(self, number: int) -> int:
        """The steady clock of a node."""
        since = self.now - BEGIN
        return BEGIN + int(since * self.rates[number]) + self.jumps.get(number, 0)

    def rotate(self) -> None:
        """One node takes the next step of the rotation of the secret: not before all have taken the last."""
        lowest = min(self.stages[number] for number in self.disks)
        behind = [number for number in sorted(self.disks) if self.stages[number] == lowest]
        if lowest + 1 < len(SECRETS):
            self.stages[self.rng.choice(behind)] += 1

    def end(self, number: int, disk: SimulatedDisk) -> None:
        """End a process; *disk* is its disk afterwards."""
        for line in [one for one in self.lines if number in (one.connector, one.acceptor)]:
            self.cut(line, dead=number)
        self.suspended.discard(number)
        self.ended.setdefault(number, []).append(self.now)
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

    def any_node(self) -> SimulatedNode | None:
        """A node that runs."""
        nodes = [one for one in self.nodes.values() if one.number not in self.suspended]
        return self.rng.choice(nodes) if nodes else None

    def resume(self) -> None:
        """Suspended nodes continue."""
        resumed, self.suspended = self.suspended, set()
        self.resumed.update(dict.fromkeys(resumed, self.now))
        for number in resumed:
            self.nodes[number].advance(self.clock(number))

    def node_with(self, identity: bytes) -> SimulatedNode | None:
        return next((one for one in self.nodes.values() if one.identity == identity), None)

    # --- the network ---

    def reach(self, a: int, b: int) -> bool:
        return not {a, b} & (self.cut_off | self.suspended)

    def cut(self, line: Line, dead: int = 0) -> None:
        """Cut a connection; some of the bytes on their way still arrive."""
        if dead and not self.is_prompt and self.rng.random() < 0.3:
            # Its end was not announced.
            line.is_half_open = True
            return
        self.lines.remove(line)
        for number, link, data in (
            (line.acceptor, line.far, line.out),
            (line.connector, line.near, line.back),
        ):
            if number == dead or number not in self.nodes:
                continue
            if line.is_half_open:
                link.end("cut")
                continue
            if self.reach(line.connector, line.acceptor) and self.rng.random() < 0.5 and not link.is_closed:
                node = self.nodes[number]
                node.receive(link, bytes(data[: self.rng.randint(0, len(data))]))
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
                if not line.is_half_open and line.near.peer and line.near.peer not in wanted:
                    self.cut(line)

    def _choose(self, node: SimulatedNode) -> None:
        replication = node.replication
        kept: list[bytes] = []
        for identity in replication.state.replicas:
            key = (node.number, identity)
            link = replication.state.link_to(identity)
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
            and not one.replication.state.is_decommissioning
        ]
        self.rng.shuffle(free)
        wanted = self.settings.replicas
        if replication.state.is_decommissioning:
            wanted = max(1, wanted)
        chosen = (kept + free)[: max(wanted, 0)]
        if not chosen:
            return
        if len(chosen) < len(replication.state.replicas):
            chosen += [one for one in replication.state.replicas if one not in chosen][: wanted - len(chosen)]
        for identity in chosen:
            if identity not in replication.state.replicas:
                self._unreachable.pop((node.number, identity), None)
        if chosen != replication.state.replicas:
            addresses = {one.identity: one.address for one in self.nodes.values()}
            replication.set_replicas(tuple(Holder(one, addresses.get(one, "")) for one in chosen))
            node.work()

    def _connect(self, node: SimulatedNode, identity: bytes) -> None:
        there = self.node_with(identity)
        if self.lying and self.rng.random() < 0.3:
            there = self.rng.choice(list(self.nodes.values()))
        if there is None or there is node or not self.reach(node.number, there.number):
            return
        pair = (node.number, there.number)
        if any(
            (one.connector, one.acceptor) == pair and one.near in node.replication.state.links
            for one in self.lines
        ):
            return
        near = node.link(connector=True, expected=identity)
        self.lines.append(Line(*pair, near, there.link(connector=False)))

    def break_half(self, line: Line) -> None:
        """One end of a connection is gone, and the other does not know it."""
        line.is_half_open = True
        self.rng.choice((line.near, line.far)).end("reset")

    def move(self) -> None:
        """Let some of the bytes on their way arrive."""
        for line in list(self.lines):
            if line in self.lines:
                self._move(line)

    def _move(self, line: Line, *, all_of_it: bool = False) -> None:
        rng = self.rng
        near, far = line.near, line.far
        if line.is_half_open:
            self._end_half_open(line)
            return
        connector, acceptor = self.nodes[line.connector], self.nodes[line.acceptor]
        for node in (connector, acceptor):
            if node.number not in self.suspended:
                node.work()
        line.out += b"".join(near.flush(connector.now))
        line.back += b"".join(far.flush(acceptor.now))
        if self.reach(line.connector, line.acceptor):
            for pair, node, link, data in (
                ((line.connector, line.acceptor), acceptor, far, line.out),
                ((line.acceptor, line.connector), connector, near, line.back),
            ):
                if pair in self.deaf or link.is_closed:
                    continue
                size = len(data) if all_of_it else rng.choice((0, rng.randint(0, len(data)), len(data)))
                got = bytes(data[:size])
                del data[:size]
                if got:
                    node.receive(link, got)
        for node in (connector, acceptor):
            if node.number not in self.suspended:
                node.work()
                node.turn()
        if line in self.lines and (near.is_closed or far.is_closed):
            # The last frames, such as a refusal, still arrive.
            line.out += b"".join(near.flush(connector.now))
            line.back += b"".join(far.flush(acceptor.now))
            if self.reach(line.connector, line.acceptor):
                if not far.is_closed:
                    acceptor.receive(far, bytes(line.out))
                if not near.is_closed:
                    connector.receive(near, bytes(line.back))
            line.out, line.back = bytearray(), bytearray()
            self.cut(line)

    def _end_half_open(self, line: Line) -> None:
        """What is sent into a half-open connection is lost; it ends when the silence was noticed."""
        alive = []
        for number, link in ((line.connector, line.near), (line.acceptor, line.far)):
            node = self.nodes.get(number)
            if node is not None and link in node.replication.state.links and not link.is_closed:
                link.flush(node.now)
                alive.append(link)
        if not alive:
            self.lines.remove(line)

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
                    node.advance(self.clock(node.number))
            self.choose()
            if self.is_prompt:
                self.settle()
            for _ in range(1 if self.step < SECOND else 3):
                self.move()
            if self.rng.random() < 0.6:
                for node in list(self.nodes.values()):
                    if node.number not in self.suspended:
                        node.checkpoint()
