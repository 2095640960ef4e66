"""The keepers of this node: who is appointed, and a connection to each, also to those of former days."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from nsqcore.cluster.models import NodeInfo
from nsqcore.process.logs import Log
from nsqd.log.disk import Disk
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.choosing import Appointed, Appointments, Candidate, choose
from nsqd.replication.frames import Fellow, Refuse
from nsqd.replication.home import Home
from nsqd.replication.home_link import HomeLink
from nsqd.server.clock import now_ns
from nsqd.server.replication.choice import KeeperChoice, candidates_of
from nsqd.server.replication.linking import Linking
from nsqd.server.replication.shown import one_keeper
from nsqd.server.replication.wanted import ReplicationOptions

_READERS: Final = 2
# A keeper that says so is asked again later, and another one meanwhile.
WILL_NOT: Final = frozenset(
    (
        Refuse.NOT_WANTED,
        Refuse.VERSION,
        Refuse.SAME_NODE_ID,
        Refuse.UNAUTHORIZED,
        Refuse.DISK,
    )
)


def _lacks(linking: Linking) -> int:
    """How much is to be sent to a keeper before it has all; most where that is not known."""
    link = None if linking.connection is None else linking.connection.link
    if link is None:
        return 1 << 62
    return link.out.behind if link.has_everything else 1 << 61


@dataclass(slots=True)
class _Standing:
    """A keeper, and the task that keeps up its connection."""

    linking: Linking
    task: asyncio.Task[None] = field(repr=False)
    # Since when its word counts for all topics, in seconds since 1970; 0 while it does not.
    linked_s: float = 0.0

    def look(self) -> None:
        """Note whether it is linked."""
        link = self.linking.connection.link if self.linking.connection is not None else None
        up = link is not None and link.keeper is not None and all(one.linked for one in link.streams())
        self.linked_s = (self.linked_s or time.time()) if up else 0.0


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
        # Nobody is connected to before there is one.
        self.home: Home | None = None
        self._options = options
        self._me = me
        self.file = file
        self._disk = disk
        self._log = log
        self._tls = tls
        self._nodes = nodes
        self._pool = ThreadPoolExecutor(_READERS, "fill")
        self._standing: dict[str, _Standing] = {}
        self._choice: KeeperChoice | None = None
        self._choosing: asyncio.Task[None] | None = None
        # Whom this node is being handed over to.
        self._taker: Appointed | None = None

    # --- life ---

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
        for standing in self._standing.values():
            standing.task.cancel()
        await asyncio.gather(*(one.task for one in self._standing.values()), return_exceptions=True)
        await asyncio.to_thread(self._pool.shutdown)

    # --- who they are ---

    @property
    def appointments(self) -> Appointments:
        """Whom this node has appointed."""
        return self.file.appointments

    def fellows(self) -> tuple[Fellow, ...]:
        """All keepers that may have copies of this node."""
        known = self.appointments
        return tuple(Fellow(one.number, one.address) for one in (*known.current, *known.former))

    def connect(self, _current: object = None) -> None:
        """Have a connection to each keeper, and to those of former days."""
        home, appointments = self.home, self.appointments
        if home is None:
            return
        today = {one.address: one for one in appointments.current}
        former = {one.address: one for one in appointments.former if one.address not in today}
        home.addresses = set(today)
        for address, standing in list(self._standing.items()):
            if address not in (former if standing.linking.visit else today):
                del self._standing[address]
                standing.task.cancel()
        for address, one in (today | former).items():
            if address in self._standing:
                continue
            linking = Linking(
                home,
                one,
                self._log,
                self._pool,
                self._disk,
                tls=self._tls,
                heard=self._heard,
                visit=address in former,
            )
            task = asyncio.get_running_loop().create_task(linking.run(), name=f"keeper {address}")
            self._standing[address] = _Standing(linking, task)
        home.say_who_keeps()

    def forget(self, link: HomeLink, number: int) -> None:
        """A keeper has no copies of former days up to that appointment. Raises nothing."""
        if not self.appointments.forget_up_to(link.appointed.address, number):
            return
        try:
            self.file.save()
        except OSError as error:
            self._log.warning("failed to note which keepers there are - %s", error)
        self.connect()

    def others_keep(self, keepers: tuple[Fellow, ...]) -> None:
        """A keeper that stood in for this node has appointed others. Raises nothing."""
        others = [(one.number, one.address) for one in keepers if one.address != self._options.address]
        if not self.appointments.heard_of(others):
            return
        try:
            self.file.save()
        except OSError as error:
            self._log.warning("failed to note which keepers there are - %s", error)
        self.connect()

    def _heard(self, appointed: Appointed, identity: str) -> None:
        """A keeper has said who it is."""
        known = self.appointments
        known.current = [
            Appointed(one.number, one.address, identity) if one.number == appointed.number else one
            for one in known.current
        ]
        try:
            self.file.save()
        except OSError as error:
            self._log.warning("failed to note a keeper - %s", error)

    # --- time ---

    def tick(self) -> None:
        """Some twenty times a second: who has answered since."""
        for standing in self._standing.values():
            standing.linking.met()
            standing.look()

    def look(self) -> None:
        """Each second: who is there, and who will not have us."""
        self._note_patience()
        if self._choosing is not None and self._choosing.done():
            # That is a fault, and it is not kept silent.
            self._choosing.result()

    def _note_patience(self) -> None:
        choice, now = self._choice, now_ns()
        if choice is None:
            return
        for address, standing in self._standing.items():
            if standing.linking.visit:
                continue
            if not standing.linking.problem:
                choice.patience.linked(address)
                continue
            choice.patience.away(address, now)
            if standing.linking.refused in WILL_NOT:
                choice.patience.refused(address, now)

    def flush(self) -> None:
        """Send what was said, to each keeper in one write."""
        for standing in self._standing.values():
            connection = standing.linking.connection
            if connection is not None:
                connection.go_on()

    # --- handing over ---

    async def takers(self) -> list[str]:
        """Who could have this node's logs for good, the best first."""
        best = [
            standing.linking
            for standing in self._standing.values()
            if not standing.linking.visit and not standing.linking.problem
        ]
        found = [one.appointed.address for one in sorted(best, key=_lacks)]
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
        return self._standing[address].linking

    def leave_taker(self) -> None:
        """All is the taker's: it is not spoken to any more."""
        taker = self._taker
        standing = None if taker is None else self._standing.pop(taker.address, None)
        if standing is not None:
            standing.task.cancel()

    def dismiss_taker(self) -> None:
        """The node stays; a keeper stays one."""
        taker, self._taker = self._taker, None
        if taker is None:
            return
        standing = self._standing.get(taker.address)
        if standing is not None:
            standing.linking.offers = None
        if self._choice is not None:
            self.choose()
            return
        known = self.appointments
        for one in [one for one in known.current if one.address == taker.address]:
            known.dismiss(one)
        try:
            self.file.save()
        except OSError as error:
            self._log.warning("failed to note which keepers there are - %s", error)
        self.connect()

    # --- to be seen ---

    def shown(self) -> list[dict[str, Any]]:
        """Each of today's keepers, as `/carried` shows it."""
        now = now_ns()
        standing = [one for one in self._standing.values() if not one.linking.visit]
        for one in standing:
            # What came about since the last tick is told as well.
            one.look()
        return [one_keeper(one.linking, one.linked_s, now) for one in standing]
