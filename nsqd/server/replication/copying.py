"""Copies of this node, and copies that it keeps for others: the parts joined for the daemon and the turn."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from nsqcore.cluster.models import NodeInfo
from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker
from nsqd.engine.topic import Topic
from nsqd.log.writer import LogWriter
from nsqd.replication import untold
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.carrier import Carrier
from nsqd.replication.choosing import Appointments, Candidate
from nsqd.replication.copies import Copies
from nsqd.replication.frames import Refuse
from nsqd.replication.framing import encode
from nsqd.replication.home import Home
from nsqd.replication.keeper import KeeperLink
from nsqd.replication.waits import Wait
from nsqd.replication.willing import Keeping
from nsqd.server.auth import AuthServers
from nsqd.server.clock import now_ns
from nsqd.server.replication.keeping import Keepers
from nsqd.server.replication.linking import Linking
from nsqd.server.replication.our_keepers import OurKeepers
from nsqd.server.replication.shown import GivenOut, given_out_of, kept_for_others
from nsqd.server.replication.troubles import Troubles
from nsqd.server.replication.wanted import ReplicationOptions
from nsqd.storage.data_path import DataPath
from nsqd.storage.slots import CheckpointJob
from nsqd.storage.topic_store import TopicStore, store_of

TICK_S: Final = 0.05


async def _nobody() -> list[NodeInfo]:
    return []


class Replication:
    """See the module; made before the data path is loaded, started with `begin` when it is."""

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
        """*unwilling* returns why no copies are taken now, or ""; *nodes* the nodes that nsqlookupd lists."""
        self.options = options
        self.home: Home | None = None
        # The keepers of this node, and the homes for which this node keeps copies.
        self.ours: OurKeepers | None = None
        self.keepers: Keepers | None = None
        # Gives out the copies here; and what to call when a home has connected.
        self.carrier: Carrier | None = None
        self.arrived: Callable[[], None] = lambda: None
        # Called when this node begins to be copied, and was not at the start.
        self.opened: Callable[[], None] = lambda: None
        self._broker = broker
        self._data = data
        self._log = log
        self._auth = auth
        self._server_tls = server_tls
        self._client_tls = client_tls
        self._unwilling = unwilling
        self._nodes = nodes
        self._awake = asyncio.Event()
        self._troubles = Troubles()

    # --- life ---

    def begin(self) -> None:
        """Start, after the data path is loaded and before anybody is served. Raises OSError."""
        options, identity = self.options, self._data.reservation.identity
        if options.keep_for_others:
            keeping: Keeping[KeeperLink] = Keeping(
                Copies(self._data.disk, self._data.path),
                identity,
                options.node_id,
                options.address,
                asks=options.asks,
                unwilling=self._unwilling,
            )
            self.keepers = Keepers(keeping, self._log, self._server_tls, options.tls_required, self._auth)
        file = AppointmentsFile(self._data.disk, self._data.path, identity, self._log.warning)
        file.load()
        self.ours = OurKeepers(
            options,
            Candidate(options.address, identity.hex(), options.zone, options.host),
            file,
            self._data.disk,
            self._log,
            tls=self._client_tls,
            nodes=self._nodes,
        )
        if options.keepers or options.home.replicas:
            self._open_home(self.ours, file)
            self.ours.begin()
            return
        # Without options for copies, a keeper that is appointed was the taker of an interrupted hand-over.
        for one in list(file.appointments.current):
            file.appointments.dismiss(one)
        if file.appointments.former:
            file.save()
            self._open_home(self.ours, file)
            self.ours.connect()

    def _open_home(self, ours: OurKeepers, file: AppointmentsFile) -> None:
        """Begin to copy this node. Raises OSError."""
        options, identity = self.options, self._data.reservation.identity
        home = Home(
            options.home,
            identity,
            options.node_id,
            options.address,
            again=file.again,
            replicas_of=self._replicas_of,
        )
        home.untold = untold.load(self._data.disk, self._data.path, identity)
        for topic in self._broker.topics.values():
            store = store_of(topic)
            if store is not None:
                home.add(store, topic.name)
        self._data.made_store = self._made
        self.home = home
        ours.open(home)

    def _replicas_of(self, name: str) -> int:
        topic = self._broker.topics.get(name)
        said = None if topic is None else topic.settings.replicas
        return self.options.home.replicas if said is None else said

    def _made(self, store: TopicStore, name: str) -> None:
        if self.home is not None:
            self.home.add(store, name)

    async def watch(self) -> None:
        """Drive everything that depends on time, until cancelled."""
        second = 0.0
        ours = self.ours
        if ours is not None:
            ours.choose()
        while True:
            if self._is_idle:
                self._awake.clear()
                await self._awake.wait()
            pause = TICK_S if self.home is not None else 1.0
            await asyncio.sleep(pause)
            second += pause
            if self.home is not None and ours is not None:
                now = now_ns()
                ours.tick()
                for link in self.home.links:
                    link.tick(now)
                self._want_checkpoints(self.home)
                await self._note_untold(self.home)
                self.flush()
            if second >= 1.0:
                second = 0.0
                if ours is not None:
                    ours.look()
                if self.keepers is not None:
                    self.keepers.tick()

    @property
    def _is_idle(self) -> bool:
        """Whether no node copies to this one, and this one copies to none."""
        keepers = self.keepers
        if self.home is not None or (self.carrier is not None and any(True for _ in self.carrier)):
            return False
        return keepers is None or not (keepers.connections or keepers.keeping.copies.removable)

    def _want_checkpoints(self, home: Home) -> None:
        """Have whole checkpoints of the wanted topics written in the next round."""
        if not home.wants_checkpoint:
            return
        wanted, home.wants_checkpoint = home.wants_checkpoint, {}
        for topic in self._broker.topics.values():
            store = store_of(topic)
            if store is not None and store in wanted:
                store.checkpoints.begin_anew()
                topic.changed = True

    async def _note_untold(self, home: Home) -> None:
        """Save which deletions keepers were not told of yet, if that has changed."""
        if not (home.untold_changed and self._troubles.may_try(home)):
            return
        home.untold_changed = False
        known = {name: set(left) for name, left in home.untold.items()}
        try:
            await asyncio.to_thread(untold.save, self._data.disk, self._data.path, home.identity, known)
        except OSError as error:
            home.untold_changed = True
            if self._troubles.failed(home, error):
                self._log.warning("failed to note a deleted topic for its keepers - %s", error)
        else:
            self._troubles.worked(home)

    async def settled(self) -> None:
        """Wait until publishers that wait for a keeper were answered, at most for --keeper-timeout."""
        home = self.home
        until = asyncio.get_running_loop().time() + self.options.home.timeout_ns / 1e9
        while home is not None and any(link.out.awaited for link in home.links):
            self.flush()
            await asyncio.sleep(0.01)
            if asyncio.get_running_loop().time() > until:
                return

    def take(self, transport: asyncio.Transport, data: bytes) -> None:
        """Take over the connection of another node, or refuse it if nothing is kept here."""
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
        """Close all connections; called after the last publisher was answered."""
        if self.ours is not None:
            await self.ours.close()
        if self.keepers is not None:
            await self.keepers.close()

    async def nodes(self) -> Sequence[NodeInfo]:
        """The nodes that nsqlookupd lists."""
        return await self._nodes()

    # --- handing over ---

    @property
    def appointments(self) -> Appointments:
        """The keepers that this node has appointed."""
        return Appointments() if self.ours is None else self.ours.appointments

    async def takers(self) -> list[str]:
        """The addresses of keepers that could take this node's logs over, the best first."""
        return [] if self.ours is None else await self.ours.takers()

    def take_on(self, address: str) -> Linking:
        """Connect to the taker at *address*; no other keeper is appointed meanwhile. Raises OSError."""
        ours = self.ours
        assert ours is not None  # noqa: S101 - nothing is handed over before the data path is loaded
        if self.home is None:
            self._open_home(ours, ours.file)
            self.opened()
            self._awake.set()
        return ours.take_on(address)

    def leave_taker(self) -> None:
        """End the connection to the taker, which has taken everything over."""
        if self.ours is not None:
            self.ours.leave_taker()

    def dismiss_taker(self) -> None:
        """Give up the hand-over, because the node stays; a taker that is a keeper stays one."""
        if self.ours is not None:
            self.ours.dismiss_taker()

    # --- what the turn and the checkpoints call ---

    def lacks(self, store: LogWriter) -> str:
        """Why publishes to this log are refused; empty when they are not."""
        return "" if self.home is None else self.home.lacks(store)

    def wait(self, store: LogWriter) -> Wait | None:
        """The wait for keepers that publishers to this log join; None when they wait for none."""
        return None if self.home is None else self.home.wait(store)

    def flush(self) -> None:
        """Send the collected frames, to each keeper in one write."""
        if self.ours is not None:
            self.ours.flush()

    def checkpointed(self, store: LogWriter, job: CheckpointJob) -> None:
        if self.home is not None:
            self.home.checkpointed(store, job)

    # --- shown to operators ---

    async def shown(self) -> dict[str, Any]:
        """The content of /carried: this node's keepers, and what it keeps for others. Raises OSError."""
        keeps: list[dict[str, Any]] = []
        if self.keepers is not None:
            keeps = await asyncio.to_thread(
                kept_for_others, self.keepers.keeping, self.given_out(), self.keepers.since()
            )
        return {"kept_by": self.kept_by(), "keeps": keeps}

    def under_copied(self) -> int:
        """The number of topics with fewer linked keepers than are wanted."""
        return 0 if self.home is None else self.home.under_copied()

    def copies_of(self, topic: Topic) -> tuple[int, int]:
        """How many keepers are linked for a topic, and how many are wanted."""
        store = store_of(topic)
        return (0, 0) if self.home is None or store is None else self.home.copies_of(store)

    def homes(self) -> int:
        """How many other nodes copy to this one now."""
        return 0 if self.keepers is None else len(self.keepers.keeping.links)

    def kept_by(self) -> list[dict[str, Any]]:
        """The keepers of this node."""
        return [] if self.ours is None else self.ours.shown()

    def given_out(self) -> list[GivenOut]:
        """The copies here, with their phases and what is given out of them."""
        return [] if self.carrier is None else given_out_of(self.carrier)
