"""What is copied of this node, and what it keeps of others: the parts joined, for the daemon and the turn."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from nsqcore.cluster.models import NodeInfo
from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker
from nsqd.engine.topic import Topic
from nsqd.log.writer import LogWriter
from nsqd.replication import untold
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.carrier import Carrier
from nsqd.replication.choosing import Appointed, Appointments, Candidate, choose
from nsqd.replication.copies import Copies
from nsqd.replication.frames import Fellow, Refuse
from nsqd.replication.framing import encode
from nsqd.replication.home import Home, HomeSettings
from nsqd.replication.home_link import HomeLink
from nsqd.replication.waits import Wait
from nsqd.replication.willing import Keeping
from nsqd.server.auth import AuthServers
from nsqd.server.clock import now_ns
from nsqd.server.replication.choice import KeeperChoice, candidates_of
from nsqd.server.replication.keeping import Keepers
from nsqd.server.replication.linking import Linking
from nsqd.server.replication.shown import GivenOut, given_out_of, kept_for_others, one_keeper
from nsqd.storage.data_path import DataPath
from nsqd.storage.slots import CheckpointJob
from nsqd.storage.topic_store import TopicStore, store_of

TICK_S: Final = 0.05
_READERS: Final = 2


@dataclass(frozen=True, slots=True)
class ReplicationOptions:
    """What the flags say."""

    home: HomeSettings
    node_id: int
    address: str
    keepers: tuple[str, ...] = ()
    keep_for_others: bool = True
    patience_ns: int = 300_000_000_000
    tls_required: bool = False
    asks: bool = False
    # Where this node is: another zone is preferred, then another host.
    zone: str = ""
    host: str = ""


# A keeper that says so is asked again later, and another one meanwhile.
_WILL_NOT: Final = frozenset(
    (
        Refuse.NOT_WANTED,
        Refuse.VERSION,
        Refuse.SAME_NODE_ID,
        Refuse.UNAUTHORIZED,
        Refuse.DISK,
    )
)


async def _nobody() -> list[NodeInfo]:
    return []


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


class Replication:
    """See the module; made before the data path is loaded, begun when it is."""

    def __init__(
        self,
        options: ReplicationOptions,
        broker: Broker,
        data: DataPath,
        log: Log,
        auth: AuthServers,
        *,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        unwilling: Callable[[], str] = lambda: "",
        nodes: Callable[[], Awaitable[Sequence[NodeInfo]]] = _nobody,
    ) -> None:
        """*unwilling* says why no copies are taken just now, or nothing; *nodes* are those of nsqlookupd."""
        self.options = options
        self.home: Home | None = None
        self.keepers: Keepers | None = None
        self._broker = broker
        self._data = data
        self._log = log
        self._auth = auth
        self._server_tls = server_tls
        self._client_tls = client_tls
        self._unwilling = unwilling
        self._standing: dict[str, _Standing] = {}
        self._appointments: AppointmentsFile | None = None
        self._nodes = nodes
        self._choice: KeeperChoice | None = None
        self._choosing: asyncio.Task[None] | None = None
        self._pool = ThreadPoolExecutor(_READERS, "fill")
        # What is given out of the copies here; and who else is to know that a home is at the door.
        self.carrier: Carrier | None = None
        self.arrived: Callable[[], None] = lambda: None
        self._awake = asyncio.Event()
        # Whom this node is being handed over to.
        self._taker: Appointed | None = None
        # Called when there is a home that there was not at the start.
        self.opened: Callable[[], None] = lambda: None

    # --- life ---

    def begin(self) -> None:
        """The data path is loaded, and nobody is served yet. Raises OSError."""
        options, identity = self.options, self._data.reservation.identity
        if options.keep_for_others:
            keeping = Keeping(
                Copies(self._data.disk, self._data.path),
                identity,
                options.node_id,
                options.address,
                asks=options.asks,
                unwilling=self._unwilling,
            )
            self.keepers = Keepers(keeping, self._log, self._server_tls, options.tls_required, self._auth)
        appointments = AppointmentsFile(self._data.disk, self._data.path, identity, self._log.warning)
        appointments.load()
        self._appointments = appointments
        wants = bool(options.keepers or options.home.replicas)
        if not wants:
            # Whoever was to take this node over when that was interrupted is a keeper no more.
            for one in list(appointments.appointments.current):
                appointments.appointments.dismiss(one)
            if not appointments.appointments.former:
                return
            appointments.save()
        self._open_home(appointments)
        if not wants:
            self._stand()
            return
        self._choice = KeeperChoice(
            Candidate(options.address, identity.hex(), options.zone, options.host),
            len(options.keepers) or options.home.replicas,
            appointments,
            options.patience_ns,
            self._log,
            fixed=options.keepers,
            nodes=self._nodes,
            appointed=self._stand,
        )
        self._choice.begin()
        self._stand()

    def _open_home(self, appointments: AppointmentsFile) -> None:
        """Let there be copies of this node. Raises OSError."""
        options, identity = self.options, self._data.reservation.identity
        self.home = Home(
            options.home,
            identity,
            options.node_id,
            options.address,
            again=appointments.again,
            replicas_of=self._replicas_of,
        )
        self.home.fellows = self._fellows
        self.home.untold = untold.load(self._data.disk, self._data.path, identity)
        for topic in self._broker.topics.values():
            store = store_of(topic)
            if store is not None:
                self.home.add(store, topic.name)
        self._data.made_store = self._made
        self.home.gone = self.forget

    # --- handing over ---

    async def takers(self) -> list[str]:
        """Who could have this node's logs for good, the best first."""
        best = [
            standing.linking
            for standing in self._standing.values()
            if not standing.linking.visit and not standing.linking.problem
        ]
        found = [one.appointed.address for one in sorted(best, key=_lacks)]
        identity = self._data.reservation.identity.hex()
        me = Candidate(self.options.address, identity, self.options.zone, self.options.host)
        others = candidates_of(await self._nodes())
        found += [one.address for one in choose(me, others, len(others))]
        return list(dict.fromkeys((*found, *self.options.keepers)))

    def take_on(self, address: str) -> Linking:
        """Have a connection to whom this node is handed over; nobody else is appointed meanwhile.

        Raises OSError.
        """
        file = self._appointments
        assert file is not None  # noqa: S101 - nothing is handed over before the data path is loaded
        if self.home is None:
            self._open_home(file)
            self.opened()
            self._awake.set()
        if self._choosing is not None:
            self._choosing.cancel()
            self._choosing = None
        known = file.appointments
        self._taker = next((one for one in known.current if one.address == address), None)
        if self._taker is None:
            self._taker = known.appoint(Candidate(address))
            file.save()
            self._stand()
        return self._standing[address].linking

    def leave_taker(self) -> None:
        """All is the taker's: it is not spoken to any more."""
        taker = self._taker
        standing = None if taker is None else self._standing.pop(taker.address, None)
        if standing is not None:
            standing.task.cancel()

    def dismiss_taker(self) -> None:
        """The node stays; a keeper stays one."""
        taker, file = self._taker, self._appointments
        self._taker = None
        if taker is None or file is None:
            return
        standing = self._standing.get(taker.address)
        if standing is not None:
            standing.linking.offers = None
        if self._choice is not None:
            self._choosing = asyncio.create_task(self._choice.run(), name="choice of keepers")
            return
        known = file.appointments
        for one in [one for one in known.current if one.address == taker.address]:
            known.dismiss(one)
        try:
            file.save()
        except OSError as error:
            self._log.warning("failed to note which keepers there are - %s", error)
        self._stand()

    @property
    def appointments(self) -> Appointments:
        """Whom this node has appointed."""
        return Appointments() if self._appointments is None else self._appointments.appointments

    def _replicas_of(self, name: str) -> int:
        topic = self._broker.topics.get(name)
        said = None if topic is None else topic.settings.replicas
        return self.options.home.replicas if said is None else said

    def _made(self, store: TopicStore, name: str) -> None:
        if self.home is not None:
            self.home.add(store, name)

    def _stand(self, _current: object = None) -> None:
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
                self._data.disk,
                tls=self._client_tls,
                heard=self._heard,
                visit=address in former,
            )
            task = asyncio.get_running_loop().create_task(linking.run(), name=f"keeper {address}")
            self._standing[address] = _Standing(linking, task)
        home.say_who_keeps()

    def _fellows(self) -> tuple[Fellow, ...]:
        """All keepers that may have copies of this node."""
        known = self.appointments
        return tuple(Fellow(one.number, one.address) for one in (*known.current, *known.former))

    def forget(self, link: HomeLink, number: int) -> None:
        """A keeper has no copies of former days up to that appointment. Raises nothing."""
        file = self._appointments
        if file is None or not file.appointments.forget_up_to(link.appointed.address, number):
            return
        try:
            file.save()
        except OSError as error:
            self._log.warning("failed to note which keepers there are - %s", error)
        self._stand()

    def _look_at_keepers(self) -> None:
        """Who is there, and who will not have us."""
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
            if standing.linking.refused in _WILL_NOT:
                choice.patience.refused(address, now)

    def _heard(self, appointed: Appointed, identity: str) -> None:
        """A keeper has said who it is."""
        appointments = self._appointments
        if appointments is None:
            return
        known = appointments.appointments
        known.current = [
            Appointed(one.number, one.address, identity) if one.number == appointed.number else one
            for one in known.current
        ]
        try:
            appointments.save()
        except OSError as error:
            self._log.warning("failed to note a keeper - %s", error)

    async def watch(self) -> None:
        """Look at the time, until cancelled."""
        second = 0.0
        if self._choice is not None:
            self._choosing = asyncio.create_task(self._choice.run(), name="choice of keepers")
        while True:
            if self._is_idle:
                self._awake.clear()
                await self._awake.wait()
            pause = TICK_S if self.home is not None else 1.0
            await asyncio.sleep(pause)
            second += pause
            if self.home is not None:
                now = now_ns()
                for standing in self._standing.values():
                    standing.linking.met()
                    standing.look()
                for link in list(self.home.links):
                    link.tick(now)
                self._want_checkpoints(self.home)
                await self._note_untold(self.home)
                self.flush()
            if second >= 1.0:
                second = 0.0
                self._look_at_keepers()
                if self._choosing is not None and self._choosing.done():
                    # That is a fault, and it is not kept silent.
                    self._choosing.result()
                if self.keepers is not None:
                    self.keepers.tick()

    @property
    def _is_idle(self) -> bool:
        """Whether nobody copies to this node, nor this node to others."""
        keepers = self.keepers
        if self.home is not None or (self.carrier is not None and any(True for _ in self.carrier)):
            return False
        return keepers is None or not (keepers.connections or keepers.keeping.copies.removable)

    def _want_checkpoints(self, home: Home) -> None:
        """Have topics written whole in the next round of checkpoints."""
        if not home.wants_checkpoint:
            return
        wanted, home.wants_checkpoint = home.wants_checkpoint, {}
        for topic in self._broker.topics.values():
            store = store_of(topic)
            if store is not None and store in wanted:
                store.checkpoints.begin_anew()
                topic.changed = True

    async def _note_untold(self, home: Home) -> None:
        """Have it on the disk of which deletions a keeper has not heard."""
        if not home.untold_changed:
            return
        home.untold_changed = False
        known = {name: set(left) for name, left in home.untold.items()}
        try:
            await asyncio.to_thread(untold.save, self._data.disk, self._data.path, home.identity, known)
        except OSError as error:
            home.untold_changed = True
            self._log.warning("failed to note a deleted topic for its keepers - %s", error)

    async def settled(self) -> None:
        """Wait until those who wait for a keeper were answered, as long as that may take at most."""
        home = self.home
        until = asyncio.get_running_loop().time() + self.options.home.timeout_ns / 1e9
        while home is not None and any(link.out.awaited for link in home.links):
            self.flush()
            await asyncio.sleep(0.01)
            if asyncio.get_running_loop().time() > until:
                return

    def take(self, transport: asyncio.Transport, data: bytes) -> None:
        """Another node has connected to have its logs kept."""
        if self.keepers is not None:
            self._awake.set()
            self.arrived()
            self.keepers.accept(transport, data)
        else:
            transport.write(
                encode(Refuse(Refuse.NOT_WANTED, "no copies are kept here: --keep-for-others=false"))
            )
            transport.close()

    async def close(self) -> None:
        """After the last publisher was answered."""
        if self._choosing is not None:
            self._choosing.cancel()
            await asyncio.gather(self._choosing, return_exceptions=True)
        for standing in self._standing.values():
            standing.task.cancel()
        await asyncio.gather(*(one.task for one in self._standing.values()), return_exceptions=True)
        if self.keepers is not None:
            await self.keepers.close()
        await asyncio.to_thread(self._pool.shutdown)

    # --- what the turn and the checkpoints call ---

    @property
    def copies_something(self) -> bool:
        return self.home is not None

    def lacks(self, store: LogWriter) -> str:
        """Why what is published to this log is refused, or nothing."""
        return "" if self.home is None else self.home.lacks(store)

    def wait(self, store: LogWriter) -> Wait | None:
        """What a publisher waits for; None when it waits for no keeper."""
        return None if self.home is None else self.home.wait(store)

    def flush(self) -> None:
        """Send what was written in this turn, to each keeper in one write."""
        for standing in self._standing.values():
            connection = standing.linking.connection
            if connection is not None:
                connection.go_on()

    def checkpointed(self, store: LogWriter, job: CheckpointJob) -> None:
        if self.home is not None:
            self.home.checkpointed(store, job)

    # --- to be seen ---

    async def shown(self) -> dict[str, Any]:
        """What /carried shows: who keeps for this node, and what it keeps for others. Raises OSError."""
        keeps: list[dict[str, Any]] = []
        if self.keepers is not None:
            keeps = await asyncio.to_thread(
                kept_for_others, self.keepers.keeping, self.given_out(), self.keepers.since()
            )
        return {"kept_by": self.kept_by(), "keeps": keeps}

    def under_copied(self) -> int:
        """Topics with fewer linked keepers than are wanted."""
        return 0 if self.home is None else self.home.under_copied()

    def copies_of(self, topic: Topic) -> tuple[int, int]:
        """How many keepers' word counts for a topic, and how many are wanted."""
        store = store_of(topic)
        return (0, 0) if self.home is None or store is None else self.home.copies_of(store)

    def homes(self) -> int:
        """How many other nodes are copied to this one now."""
        return 0 if self.keepers is None else len(self.keepers.keeping.links)

    def kept_by(self) -> list[dict[str, Any]]:
        """The keepers of this node."""
        now = now_ns()
        standing = [one for one in self._standing.values() if not one.linking.visit]
        for one in standing:
            # What came about since the last tick is told as well.
            one.look()
        return [one_keeper(one.linking, one.linked_s, now) for one in standing]

    def given_out(self) -> list[GivenOut]:
        """What is given out here of other nodes' messages."""
        return [] if self.carrier is None else given_out_of(self.carrier)
