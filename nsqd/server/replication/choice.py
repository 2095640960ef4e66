"""Which nsqd this node asks to keep its logs: the best of --keepers.

Anybody can register at nsqlookupd, so an nsqd that only nsqlookupd names gets no messages. Of the named ones,
those that nsqlookupd lists are preferred, and those in another zone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from nsqcore.cluster.models import NodeInfo
from nsqcore.process.logs import Log
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.choosing import Appointed, Candidate, KeeperPatience, replaced
from nsqd.server.clock import now_ns

LOOK_S: Final = 5.0
# Before the first choice.
FIRST_LOOK_S: Final = 1.0


def candidates_of(nodes: Sequence[NodeInfo]) -> list[Candidate]:
    """The nodes of nsqlookupd that say that they keep for others; an nsqd of the original does not."""
    return [
        Candidate(node.tcp_address, node.data_path, node.topology_zone, node.hostname)
        for node in nodes
        if node.keeps and node.data_path
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
        named: Sequence[str],
        nodes: Callable[[], Awaitable[Sequence[NodeInfo]]],
        appointed: Callable[[list[Appointed]], None],
        clock: Callable[[], int] = now_ns,
    ) -> None:
        """*named* are the addresses of --keepers; *appointed* is called after a change is durable."""
        self.patience = KeeperPatience(patience_ns)
        self._me = me
        self._count = count
        self._file = file
        self._log = log
        self._named = [Candidate(address) for address in dict.fromkeys(named) if address != me.address]
        self._nodes = nodes
        self._appointed = appointed
        self._clock = clock
        self._look = asyncio.Event()
        # Whether nsqlookupd was asked before.
        self._asked = False
        self._told: list[Appointed] | None = None
        self._too_few = -1
        # Why the keepers cannot be noted; empty while they can.
        self._problem = ""

    def look_again(self) -> None:
        """Check again soon, because something has changed; for example, a keeper refused."""
        self._look.set()

    def begin(self) -> None:
        """Dismiss keepers that are not named, before anybody is served. Raises OSError.

        If all named ones are needed, they are appointed.
        """
        named = {one.address for one in self._named}
        with self._file.change() as appointments:
            for one in list(appointments.current):
                if one.address not in named:
                    appointments.dismiss(one)
            if len(named) <= self._count:
                replaced(self._me, self._named, self._count, appointments, self.patience, self._clock())

    async def run(self) -> None:
        """Check now, then every few seconds, until cancelled."""
        while True:
            self._look.clear()
            await self.look()
            try:
                async with asyncio.timeout(FIRST_LOOK_S if self._told is None else LOOK_S):
                    await self._look.wait()
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Bring the appointments up to date."""
        candidates = await self._candidates()
        if candidates is None:
            return
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

    async def _candidates(self) -> list[Candidate] | None:
        """The named keepers from which to choose; None if nsqlookupd may say more at the next look."""
        if len(self._named) <= self._count:
            return self._named
        named = {one.address for one in self._named}
        listed = [one for one in candidates_of(await self._nodes()) if one.address in named]
        is_first, self._asked = not self._asked, True
        if len(listed) >= self._count:
            return listed
        return None if is_first else self._named

    def _say_too_few(self, have: int) -> None:
        if have != self._too_few and have < self._count:
            self._log.warning(
                "REPLICATION: %d of %d keepers are known: set --keepers to the addresses of %d other nsqd or"
                " more; an nsqd that only nsqlookupd names gets no messages",
                *(have, self._count, self._count),
            )
        self._too_few = have
