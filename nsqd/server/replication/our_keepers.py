"""The keepers of this node: those appointed, and the one that takes everything when the node leaves."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from nsqcore.cluster.models import NodeInfo
from nsqcore.process.logs import Log
from nsqd.log.disk import Disk
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.choosing import Appointed, Appointments, Candidate, choose
from nsqd.replication.frames import Fellow
from nsqd.replication.home import Home
from nsqd.server.clock import now_ns
from nsqd.server.replication.choice import KeeperChoice, candidates_of
from nsqd.server.replication.connections import KeeperConnection, KeeperConnections
from nsqd.server.replication.linking import Linking
from nsqd.server.replication.shown import one_keeper
from nsqd.server.replication.wanted import ReplicationOptions

_READERS: Final = 2


def _lacks(keeper: KeeperConnection) -> int:
    """How many bytes a keeper lacks; a very large number where that is unknown."""
    link = keeper.link
    if link is None:
        return 1 << 62
    return link.out.behind if link.has_said_all else 1 << 61


class OurKeepers:
    """See the module."""

    def __init__(
        self,
        options: ReplicationOptions,
        me: Candidate,
        file: AppointmentsFile,
        disk: Disk,
        log: Log,
        *,
        tls: ssl.SSLContext | None,
        nodes: Callable[[], Awaitable[Sequence[NodeInfo]]],
    ) -> None:
        """*file* is already loaded; *nodes* returns the nodes that nsqlookupd lists."""
        # There are no connections before there is a home.
        self._connections: KeeperConnections | None = None
        self._options = options
        self._me = me
        self.file = file
        self._disk = disk
        self._log = log
        self._tls = tls
        self._nodes = nodes
        self._choice: KeeperChoice | None = None
        self._choosing: asyncio.Task[None] | None = None
        # The nsqd to which this node is being handed over.
        self._taker: Appointed | None = None

    # --- life ---

    def open(self, home: Home) -> None:
        """Begin to copy *home*."""
        self._connections = KeeperConnections(
            home, self.file, self._disk, self._log, self._tls, readers=_READERS
        )
        home.fellows, home.others_keep = self.file.fellows, self._others_keep

    def begin(self) -> None:
        """Appoint keepers that need no choice, and connect, before anybody is served. Raises OSError."""
        options = self._options
        self._choice = KeeperChoice(
            self._me,
            options.home.replicas or len(options.keepers),
            self.file,
            options.patience_ns,
            self._log,
            named=options.keepers,
            nodes=self._nodes,
            appointed=self.connect,
        )
        self._choice.begin()
        self.connect()

    def choose(self) -> None:
        """Start the task that chooses keepers, if this node is to be copied."""
        if self._choice is not None:
            self._choosing = asyncio.create_task(self._choice.run(), name="choice of keepers")

    async def close(self) -> None:
        """Close all connections; called after the last publisher was answered."""
        if self._choosing is not None:
            self._choosing.cancel()
            await asyncio.gather(self._choosing, return_exceptions=True)
        if self._connections is not None:
            await self._connections.close()

    # --- who they are ---

    @property
    def appointments(self) -> Appointments:
        """The keepers that this node has appointed."""
        return self.file.appointments

    def connect(self, _current: object = None) -> None:
        """Keep a connection to each present and former keeper."""
        if self._connections is not None:
            self._connections.keep_up()

    def _others_keep(self, keepers: tuple[Fellow, ...]) -> None:
        """Note the keepers that a keeper has appointed while it stood in for this node."""
        others = [(one.number, one.address) for one in keepers if one.address != self._options.address]
        if self.appointments.heard_of(others) and self._connections is not None:
            self._connections.others_are_known()

    # --- time ---

    def tick(self) -> None:
        """Note which keepers have answered; called some twenty times a second."""
        if self._connections is not None:
            self._connections.tick()

    def look(self) -> None:
        """Note which keepers are connected, away or refuse; called once a second."""
        choice, keepers = self._choice, self._connections
        if choice is not None and keepers is not None and keepers.note_patience(choice.patience, now_ns()):
            choice.look_again()
        if self._choosing is not None and self._choosing.done():
            # It ends only by a fault: raise its error.
            self._choosing.result()

    def flush(self) -> None:
        """Send the collected frames, to each keeper in one write."""
        if self._connections is not None:
            self._connections.flush()

    # --- handing over ---

    async def takers(self) -> list[str]:
        """The addresses of keepers that could take this node's logs over, the best first."""
        named = set(self._options.keepers)
        best = [one for one in self._connections or () if not one.linking.problem]
        found = [one.linking.appointed.address for one in sorted(best, key=_lacks)]
        listed = candidates_of(await self._nodes()) if named else []
        found += [one.address for one in choose(self._me, listed, len(listed))]
        return [one for one in dict.fromkeys((*found, *self._options.keepers)) if one in named]

    def take_on(self, address: str) -> Linking:
        """Connect to the taker at *address*; no other keeper is appointed meanwhile. Raises OSError."""
        with self.file.change() as known:
            taker = next((one for one in known.current if one.address == address), None)
            taker = taker or known.appoint(Candidate(address))
        self._taker = taker
        if self._choosing is not None:
            self._choosing.cancel()
            self._choosing = None
        self.connect()
        keeper = None if self._connections is None else self._connections.of(address)
        assert keeper is not None  # noqa: S101 - each appointed keeper has a connection
        return keeper.linking

    def leave_taker(self) -> None:
        """End the connection to the taker, which has taken everything over."""
        if self._taker is not None and self._connections is not None:
            self._connections.leave(self._taker.address)

    def dismiss_taker(self) -> None:
        """Give up the hand-over, because the node stays; a taker that is a keeper stays one."""
        taker, self._taker = self._taker, None
        keepers = self._connections
        if taker is None or keepers is None:
            return
        keeper = keepers.of(taker.address)
        if keeper is not None:
            keeper.linking.offers = None
        if self._choice is not None:
            self.choose()
            return
        known = self.appointments
        for one in [one for one in known.current if one.address == taker.address]:
            known.dismiss(one)
        keepers.save()
        keepers.keep_up()

    # --- shown to operators ---

    def shown(self) -> list[dict[str, Any]]:
        """The present keepers, as `/carried` shows them."""
        now = now_ns()
        found = []
        for one in self._connections or ():
            # Include changes since the last tick.
            one.look()
            found.append(one_keeper(one.linking, one.linked_s, now))
        return found
