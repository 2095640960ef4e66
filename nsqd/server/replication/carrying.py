"""Giving out copies of other nodes, and taking back own logs: timing and threads for `Carrier`."""

import asyncio
import ssl
import time
from collections.abc import Callable

from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker
from nsqd.engine.carried_topic import CarriedTopic
from nsqd.replication.carried_copy import CarrierJob, CloseCopy
from nsqd.replication.carrier import Carrier
from nsqd.replication.choosing import Appointed, Appointments
from nsqd.replication.copies import Copies
from nsqd.replication.fellowship import Fellowship
from nsqd.replication.frames import AnyFrame
from nsqd.replication.home import Home
from nsqd.replication.homecoming import ComingHome
from nsqd.replication.inherited import NoteForGood
from nsqd.replication.meeting import KeeperMeeting
from nsqd.replication.opening import CopyOpener
from nsqd.server.clock import now_ns
from nsqd.server.replication.asking import AskingFellows, Introduction
from nsqd.server.replication.keeping import Keepers
from nsqd.server.replication.standing_in import StandsIn
from nsqd.server.upkeep import Checkpoints
from nsqd.storage.data_path import DataPath, claim
from nsqd.storage.topic_store import store_of

TICK_S = 0.1


class Carrying:
    """The keeper's side and the home's side of one node; one task."""

    def __init__(
        self,
        broker: Broker,
        data: DataPath,
        checkpoints: Checkpoints,
        log: Log,
        ask_turn: Callable[[], None],
        *,
        carry_after_ns: int,
        carry_ask_ns: int,
    ) -> None:
        self.carrier: Carrier | None = None
        self.coming: ComingHome | None = None
        self._broker = broker
        self._data = data
        self._checkpoints = checkpoints
        self._log = log
        self._ask_turn = ask_turn
        self._carry_after_ns = carry_after_ns
        self._carry_ask_ns = carry_ask_ns
        self._keepers: Keepers | None = None
        self._meeting: KeeperMeeting | None = None
        self._fellows: AskingFellows | None = None
        # Makes new copies in the place of homes that do not come back.
        self.stands_in: StandsIn | None = None
        self._home: Home | None = None
        self._linked: set[str] = set()
        self._jobs: set[asyncio.Task[None]] = set()
        # Set when there may be work again.
        self._awake = asyncio.Event()

    # --- beginning ---

    def keep(
        self, keepers: Keepers, copies: Copies, secret: Callable[[], bytes], tls: ssl.SSLContext | None
    ) -> None:
        """Keep for others; *secret* and *tls* are for connections to other keepers. Raises OSError."""
        self._keepers = keepers
        self.carrier = Carrier(
            self._broker,
            copies,
            CopyOpener(self._data, self._broker),
            self._carry_after_ns,
            self._log.info,
            self._log.warning,
        )
        self.carrier.look(now_ns())
        self._meeting = KeeperMeeting(keepers.keeping, self.carrier, time.time_ns)
        keeping = keepers.keeping
        fellowship = Fellowship(self.carrier, keeping.address)
        keeping.answers = fellowship.answers(now_ns)
        who = Introduction(keeping.identity, keeping.node_id, keeping.address, secret, tls)
        self._fellows = AskingFellows(fellowship, who, self._ask_turn)
        self._meeting.at(now_ns())

    def come_home(self, home: Home, appointments: Appointments) -> None:
        """Hold back what keepers of this node may have given out; called before anybody is served."""
        self._home = home
        known = {one.address for one in (*appointments.current, *appointments.former)}
        self.coming = ComingHome(self._broker, known, self._carry_ask_ns, now_ns(), claim)
        home.heard = self._heard
        home.holdings = self.coming.holdings
        home.settled = self.coming.settled

    # --- time ---

    def wake(self) -> None:
        """Go on at once, because a home has connected, or a keeper has said what it carried."""
        if self._meeting is not None:
            self._meeting.at(now_ns())
        self._awake.set()

    @property
    def _is_idle(self) -> bool:
        """Whether there is nothing to do with time: no copies, no homes, and nothing is held back."""
        if self._keepers is not None and self._keepers.connections:
            return False
        holds = self.coming is not None and self.coming.is_holding
        return not holds and not self._jobs and (self._meeting is None or self._meeting.is_idle)

    async def watch(self) -> None:
        """Run until cancelled; sleep while there is nothing to do."""
        try:
            while True:
                self._tick()
                if self._is_idle:
                    self._awake.clear()
                    await self._awake.wait()
                else:
                    await asyncio.sleep(TICK_S)
        finally:
            if self._fellows is not None:
                await self._fellows.close()
            if self.stands_in is not None:
                await self.stands_in.close()
            # Otherwise a thread that is still at work could write after later writes.
            await asyncio.gather(*self._jobs, return_exceptions=True)

    def _tick(self) -> None:
        now = now_ns()
        if self._meeting is not None:
            for job in self._meeting.tick(now):
                task = asyncio.create_task(self._do(self._meeting, job), name="carried copy")
                self._jobs.add(task)
                task.add_done_callback(self._jobs.discard)
            self._flush()
        if self._fellows is not None:
            self._fellows.tick(now)
        if self.stands_in is not None:
            self.stands_in.tick(now)
        if self.coming is not None and self._home is not None:
            linked = {link.appointed.address for link in self._home.links}
            for address in self._linked - linked:
                self.coming.went(address, now)
            self._linked = linked
            if self.coming.is_holding:
                self.coming.tick(now)
                self._ask_turn()

    async def _do(self, meeting: KeeperMeeting, job: CarrierJob | NoteForGood) -> None:
        error: Exception | None = None
        try:
            if isinstance(job, CloseCopy):
                await self._put_away(job.topics)
            else:
                await asyncio.to_thread(job.run, self._data.disk)
        except Exception as failed:  # noqa: BLE001 - any error is reported, and the job is tried again
            error = failed
        meeting.ended(job, error, now_ns())
        self._flush()
        self._ask_turn()

    async def _put_away(self, topics: list[CarriedTopic]) -> None:
        """Write the last checkpoints, and close the stores. Raises OSError if one could not be written."""
        noted = True
        for topic in topics:
            noted = await self._checkpoints.write_at_once(topic) and noted
            store = store_of(topic)
            if store is not None:
                store.close()
        if not noted:
            raise OSError("the last checkpoint of a copy could not be written")

    def _flush(self) -> None:
        if self._keepers is not None:
            for connection in list(self._keepers.connections):
                connection.say()

    def _heard(self, keeper: Appointed, topic: str, frame: AnyFrame) -> None:
        if self.coming is not None:
            self.coming.heard(keeper.address, topic, frame)
            self.wake()
            # What was learned is staged as a note, and the turn writes it.
            self._ask_turn()
