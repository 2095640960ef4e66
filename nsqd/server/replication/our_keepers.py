"""The keepers of this node: who is appointed, and who takes all of it when the node leaves."""

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
    """How much is to be sent to a keeper before it has all; most where that is not known."""
    link = keeper.link
    if link is None:
        return 1 << 62
    return link.out.behind if link.has_everything else 1 << 61


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
        """*file* is loaded; *nodes* are those of nsqlookupd."""
        # Nobody is connected to before there is a home.
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
        # Whom this node is being handed over to.
        self._taker: Appointed | None = None

    # --- life ---

    def open(self, home: Home) -> None:
        """There is something to be copied."""
        keepers = self._connections = KeeperConnections(
            home, self.file, self._disk, self._log, self._tls, readers=_READERS
        )
        home.fellows, home.others_keep = keepers.fellows, self._others_keep

    def begin(self) -> None:
        """Fixed keepers are appointed before anybody is served. Raises OSError."""
        options = self._options
        self._choice = KeeperChoice(
            self._me,
            len(options.keepers) or options.home.replicas,
            self.file,
            options.patience_ns,
            self._log,
            fixed=options.keepers,
            nodes=self._nodes,
            appointed=self.connect,
        )
        self._choice.begin()
        self.connect()

    def choose(self) -> None:
        """Go on choosing, where this node is to be copied."""
        if self._choice is not None:
            self._choosing = asyncio.create_task(self._choice.run(), name="choice of keepers")

    async def close(self) -> None:
        """After the last publisher was answered."""
        if self._choosing is not None:
            self._choosing.cancel()
            await asyncio.gather(self._choosing, return_exceptions=True)
        if self._connections is not None:
            await self._connections.close()

    # --- who they are ---

    @property
    def appointments(self) -> Appointments:
        """Whom this node has appointed."""
        return self.file.appointments

    def connect(self, _current: object = None) -> None:
        """Have a connection to each keeper, and to those of former days."""
        if self._connections is not None:
            self._connections.keep_up()

    def _others_keep(self, keepers: tuple[Fellow, ...]) -> None:
        """A keeper that stood in for this node has appointed others. Raises nothing."""
        others = [(one.number, one.address) for one in keepers if one.address != self._options.address]
        if self.appointments.heard_of(others) and self._connections is not None:
            self._connections.others_are_known()

    # --- time ---

    def tick(self) -> None:
        """Some twenty times a second: who has answered since."""
        if self._connections is not None:
            self._connections.tick()

    def look(self) -> None:
        """Each second: who is there, and who will not have us."""
        choice, keepers = self._choice, self._connections
        if choice is not None and keepers is not None and keepers.note_patience(choice.patience, now_ns()):
            choice.look_again()
        if self._choosing is not None and self._choosing.done():
            # That is a fault, and it is not kept silent.
            self._choosing.result()

    def flush(self) -> None:
        """Send what was said, to each keeper in one write."""
        if self._connections is not None:
            self._connections.flush()

    # --- handing over ---

    async def takers(self) -> list[str]:
        """Who could have this node's logs for good, the best first."""
        best = [one for one in self._connections or () if not one.linking.problem]
        found = [one.linking.appointed.address for one in sorted(best, key=_lacks)]
        others = candidates_of(await self._nodes())
        found += [one.address for one in choose(self._me, others, len(others))]
        return list(dict.fromkeys((*found, *self._options.keepers)))

    def take_on(self, address: str) -> Linking:
        """Have a connection to whom this node is handed over; nobody else is appointed meanwhile.

        Raises OSError.
        """
        if self._choosing is not None:
            self._choosing.cancel()
            self._choosing = None
        known = self.appointments
        self._taker = next((one for one in known.current if one.address == address), None)
        if self._taker is None:
            self._taker = known.appoint(Candidate(address))
            self.file.save()
            self.connect()
        keeper = None if self._connections is None else self._connections.of(address)
        assert keeper is not None  # noqa: S101 - whoever is appointed has a connection
        return keeper.linking

    def leave_taker(self) -> None:
        """All is the taker's: it is not spoken to any more."""
        if self._taker is not None and self._connections is not None:
            self._connections.leave(self._taker.address)

    def dismiss_taker(self) -> None:
        """The node stays; a keeper stays one."""
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

    # --- to be seen ---

    def shown(self) -> list[dict[str, Any]]:
        """Each of today's keepers, as `/carried` shows it."""
        now = now_ns()
        found = []
        for one in self._connections or ():
            # What came about since the last tick is told as well.
            one.look()
            found.append(one_keeper(one.linking, one.linked_s, now))
        return found
