"""Which nsqd this node asks to keep its logs: those of --keepers, or the best that nsqlookupd names."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from nsqcore.cluster.models import NodeInfo
from nsqcore.process.logs import Log
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.choosing import Appointed, Candidate, KeeperPatience, replaced
from nsqd.server.clock import now_ns

LOOK_S: Final = 5.0


def candidates_of(nodes: Sequence[NodeInfo]) -> list[Candidate]:
    """The nodes of nsqlookupd that say that they keep for others; an nsqd of the original does not."""
    return [
        Candidate(node.tcp_address, node.identity, node.topology_zone, node.hostname)
        for node in nodes
        if node.accepts_replicas and node.identity
    ]


class KeeperChoice:
    """Appoints keepers, and replaces them when needed; one task."""

    def __init__(
        self,
        me: Candidate,
        count: int,
        file: AppointmentsFile,
        patience_ns: int,
        log: Log,
        *,
        fixed: Sequence[str] = (),
        nodes: Callable[[], Awaitable[Sequence[NodeInfo]]],
        appointed: Callable[[list[Appointed]], None],
        clock: Callable[[], int] = now_ns,
    ) -> None:
        """*appointed* is called with the appointed keepers, after a change is durable."""
        self.patience = KeeperPatience(patience_ns)
        self._me = me
        self._count = count
        self._file = file
        self._log = log
        self._fixed = [Candidate(address) for address in fixed]
        self._nodes = nodes
        self._appointed = appointed
        self._clock = clock
        self._look = asyncio.Event()
        self._told: list[Appointed] | None = None
        self._too_few = -1
        # Why the keepers cannot be noted; empty while they can.
        self._problem = ""

    def look_again(self) -> None:
        """Check again soon, because something has changed; for example, a keeper refused."""
        self._look.set()

    def begin(self) -> None:
        """Appoint fixed keepers, before anybody is served. Raises OSError."""
        if not self._fixed:
            return
        fixed = {one.address for one in self._fixed}
        with self._file.change() as appointments:
            for one in list(appointments.current):
                if one.address not in fixed:
                    appointments.dismiss(one)
            replaced(self._me, self._fixed, self._count, appointments, self.patience, self._clock())

    async def run(self) -> None:
        """Check now, then every few seconds, until cancelled."""
        while True:
            self._look.clear()
            await self.look()
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._look.wait()
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Bring the appointments up to date."""
        candidates = self._fixed or candidates_of(await self._nodes())
        appointments = self._file.appointments
        try:
            with self._file.change():
                new = replaced(self._me, candidates, self._count, appointments, self.patience, self._clock())
        except OSError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                self._log.error("REPLICATION: failed to note the keepers, will try again - %s", error)
            # A number could be given again after a restart, so no keeper is told of it.
            return
        self._problem = ""
        for one in new:
            self._log.info("REPLICATION: %s is keeper number %d", one.address, one.number)
        self._say_too_few(len(appointments.current))
        if appointments.current != self._told:
            self._told = list(appointments.current)
            self._appointed(self._told)

    def _say_too_few(self, have: int) -> None:
        if have != self._too_few and have < self._count:
            self._log.warning("REPLICATION: %d of %d keepers are known", have, self._count)
        self._too_few = have
