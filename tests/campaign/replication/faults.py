"""Faults of disks, clocks and the network that do not end a node."""

import errno
from typing import Final

from nsqd.replication.frames import VERSIONS, Hello, Refuse
from nsqd.replication.framing import FrameReader, encode
from nsqd.replication.handshake import CONNECTOR, Handshake, Incarnations
from tests.campaign.replication.node import DATA, OF_REPLICATION, SECOND, SimulatedNode
from tests.campaign.replication.promises import Promises
from tests.campaign.replication.site import SECRETS, Site
from tests.support.simulated_disk import SimulatedDisk

# Calls that fail when the disk is full.
_WRITES: Final = ("append", "write_at", "make_folder")
_MAX_NODES: Final = 5


class Faults:
    """The events of one site."""

    def __init__(self, site: Site, promises: Promises, wrong: list[str]) -> None:
        """*wrong* gets violations."""
        self.site = site
        self.rng = site.rng
        self.promises = promises
        self.wrong = wrong

    def end(self) -> None:
        """End all faults."""
        site = self.site
        site.cut_off.clear()
        site.deaf.clear()
        site.lying = False
        for node in site.nodes.values():
            node.calls_left = -1
            node.is_slow = False
            node.disk.heal()

    # --- disks ---

    def copy(self) -> None:
        """A data path is copied to a new node, as ``cp -r`` does; the original may run."""
        site = self.site
        if len(site.disks) >= _MAX_NODES:
            return
        source = self.rng.choice(sorted(site.disks))
        site.add(copied(site.disks[source]))

    def full(self) -> None:
        """A disk has no room for copies, or has room again."""
        node = self.site.any_node()
        if node is None:
            return
        if node.disk.faults:
            node.disk.heal()
        else:
            self.fill(node)

    def fill(self, node: SimulatedNode) -> None:
        """The disk of a node has no room for copies."""
        for operation in _WRITES:
            for path in OF_REPLICATION:
                node.disk.fail(errno.ENOSPC, operation, path, times=None)

    def slow(self) -> None:
        """Jobs of a node take long and end in any order, or do not any more."""
        node = self.site.any_node()
        if node is not None:
            node.is_slow = not node.is_slow

    def kill_at_call(self) -> None:
        """A node is killed at one of its next disk calls."""
        node = self.site.any_node()
        if node is not None:
            node.calls_left = self.rng.randint(1, 60)

    def cut_decommission(self) -> None:
        """A node that is decommissioned, or takes over, is killed at one of its next disk calls."""
        nodes = [one for one in self.site.nodes.values() if one.number not in self.site.suspended]
        leaving = [one for one in nodes if one.replication.state.is_decommissioning]
        if leaving:
            self.rng.choice((*leaving, *nodes)).calls_left = self.rng.randint(1, 40)

    # --- clocks ---

    def jump(self) -> None:
        """The clock of a node goes forward."""
        node = self.site.any_node()
        if node is not None:
            jumps = self.site.jumps
            jumps[node.number] = jumps.get(node.number, 0) + self.rng.choice((4, 40)) * SECOND

    # --- the network ---

    def half_open(self) -> None:
        """One end of a connection is gone, and the other does not know it."""
        lines = [one for one in self.site.lines if not one.is_half_open]
        if lines:
            self.site.break_half(self.rng.choice(lines))

    def lie(self) -> None:
        """From now on nsqlookupd gives false addresses, or does not any more."""
        self.site.lying = not self.site.lying

    def rotate(self) -> None:
        """A node takes the next step of the rotation of the secret."""
        self.site.rotate()

    def stranger(self) -> None:
        """A stranger with another secret connects."""
        self._meet(b"the secret of a stranger in the net", VERSIONS, Refuse.NOT_A_MEMBER)

    def version(self) -> None:
        """A node of a later release connects, which does not speak this version any more."""
        later = (VERSIONS[1] + 2, VERSIONS[1] + 3)
        self._meet(SECRETS[0][0], later, Refuse.VERSION)

    def _meet(self, secret: bytes, versions: tuple[int, int], code: int) -> None:
        node = self.site.any_node()
        if node is None:
            return
        before = set(node.replication.logs)
        hello = Hello(
            *(self.rng.randbytes(16), 1, self.rng.randbytes(16), bytes(16)),
            *(900, "stranger:4150", self.rng.randbytes(32)),
            min_version=versions[0],
            max_version=versions[1],
        )
        handshake = Handshake(CONNECTOR, hello, lambda: (secret,), Incarnations())
        link = node.link(connector=False)
        out, reader = list(handshake.first_frames()), FrameReader()
        for _ in range(4):
            node.receive(link, b"".join(map(encode, out)))
            answer = b"".join(link.flush(node.now))
            out = [reply for frame in reader.feed(answer) for reply in handshake.take(frame)]
        if link.refused != code or not link.is_closed or set(node.replication.logs) != before:
            self.wrong.append(f"a stranger was not refused: {link.refused} {link.reason}")


def copied(disk: SimulatedDisk) -> SimulatedDisk:
    """The disk with a copy of the data path."""
    found = disk.killed()
    source = DATA.with_name(f"before {len(found.names(DATA.parent))}")
    found.rename(DATA, source)
    found.copied(source, DATA)
    return found
