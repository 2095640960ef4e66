"""Keeping up the copies of logs whose homes do not come back: timing and connections for `succession`."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from nsqcore.cluster.models import NodeInfo
from nsqcore.process.logs import Log
from nsqd.engine import facts
from nsqd.engine.broker import Broker
from nsqd.engine.facts import ChannelFacts
from nsqd.engine.topic import Topic
from nsqd.log.ranges import Ranges, merged, size_of
from nsqd.replication import succession
from nsqd.replication.carried_copy import CarriedCopy
from nsqd.replication.carrier import Carrier
from nsqd.replication.choosing import Appointed, Candidate
from nsqd.replication.frames import AnyFrame, Fellow, Finished
from nsqd.replication.inherited import is_done_with
from nsqd.server.replication.choice import KeeperChoice
from nsqd.server.replication.connections import KeeperConnections
from nsqd.server.replication.leaving import (
    OUTSIDE,
    CarriedLogs,
    Surroundings,
    WritesCheckpoints,
    apart_home,
)
from nsqd.server.replication.troubles import Troubles
from nsqd.server.replication.wanted import ReplicationOptions
from nsqd.storage.data_path import DataPath
from nsqd.storage.topic_store import store_of

_TICK_S: Final = 0.05
# How often keepers are told of messages finished since.
_TELL_S: Final = 5.0
# When nobody is owed any of the log, its keepers are told for so long to remove their copies.
_LET_GO_S: Final = 5.0


class StandingIn:
    """One data path: its copy here is streamed on to keepers, as its home did; a task."""

    def __init__(
        self,
        copy: CarriedCopy,
        carrier: Carrier,
        data: DataPath,
        checkpoints: WritesCheckpoints,
        options: ReplicationOptions,
        log: Log,
        tls: ssl.SSLContext | None,
        *,
        nodes: Callable[[], Awaitable[Sequence[NodeInfo]]],
        ask_turn: Callable[[], None],
        around: Surroundings,
    ) -> None:
        """Begin the succession for *copy*. Raises OSError."""
        identity = copy.identity
        self._copy, self._carrier = copy, carrier
        self._log, self._around = log, around
        file = carrier.successors.file(identity)
        succession.begin(file, copy, carrier.fellows.known(identity), options.address)
        home = apart_home(identity, options.node_id, options.address, options.home.secret, file)
        home.fellows = self._fellows
        home.holdings, home.settled, home.heard = self._holdings, self._settled, self._heard
        self._home = home
        self._keepers = KeeperConnections(home, file, data.disk, log, tls, readers=1, connect=around.connect)
        self._me = Fellow(copy.serving.appointment, options.address)
        self._ask_turn = ask_turn
        # Writes checkpoints in the place of the home.
        self._logs = CarriedLogs(
            copy,
            checkpoints,
            home,
            carrier.folder_of(identity),
            data.disk,
            file,
            log,
            tls,
            allow=carrier.allow,
            send_away=lambda: None,
            ask_turn=ask_turn,
            around=around,
        )
        self._choice = KeeperChoice(
            Candidate(options.address, data.reservation.identity.hex(), options.zone, options.host),
            options.home.replicas,
            file,
            options.patience_ns,
            log,
            named=options.keepers,
            nodes=nodes,
            appointed=self._keepers.keep_up,
            clock=around.clock,
        )
        self._told: dict[Topic, int] = {}
        # Until when keepers are told to remove their copies, because nobody is owed any of it; 0 before.
        self._ends_s = 0.0

    @property
    def is_of(self) -> CarriedCopy:
        return self._copy

    def let_go(self) -> None:
        """Tell keepers to remove their copies, and end: nobody is owed any of it or comes back for it.

        A keeper with an older copy is not told: that copy may have messages that the home lost and that were
        never here.
        """
        if self._ends_s:
            return
        self._ends_s = asyncio.get_running_loop().time() + _LET_GO_S
        for link in self._home.links:
            if link.is_streamed_to and link.has_no_older:
                for log, name in list(self._home.known()):
                    link.deleted(log, name)

    async def run(self) -> None:
        """Stand in until cancelled, or until the log is let go of."""
        self._log.info(
            "CARRIED(%s): the home does not come back, keepers are appointed in its place",
            self._copy.identity.hex()[:8],
        )
        choosing = asyncio.create_task(self._choice.run(), name="choice of successors")
        try:
            self._keepers.keep_up()
            await self._pump(choosing)
        finally:
            choosing.cancel()
            await asyncio.gather(choosing, return_exceptions=True)
            await self._keepers.close()
            await self._logs.close()

    def _fellows(self) -> tuple[Fellow, ...]:
        return (self._me, *self._keepers.file.fellows())

    # --- what is said and heard ---

    def _holdings(self, name: str) -> tuple[Ranges, dict[str, ChannelFacts]]:
        topic = self._copy.topics.get(name)
        return ([], {}) if topic is None else (self._carrier.readable(topic), facts.all_facts(topic))

    def _settled(self, name: str) -> Ranges:
        topic = self._copy.topics.get(name)
        return [] if topic is None else facts.settled(topic, self._carrier.held(topic))

    def _heard(self, _keeper: Appointed, name: str, frame: AnyFrame) -> None:
        topic = self._copy.topics.get(name)
        if topic is not None and isinstance(frame, Finished):
            told = {frame.channel: ChannelFacts(frame.generation, merged(list(frame.ranges)))}
            self._carrier.learn(topic, told, higher=False)
            self._ask_turn()

    async def _pump(self, choosing: "asyncio.Task[None]") -> None:
        told_s = 0.0
        while True:
            if choosing.done():
                # It ends only by a fault: raise its error.
                choosing.result()
            now = self._around.clock()
            self._keepers.tick()
            if self._keepers.note_patience(self._choice.patience, now):
                self._choice.look_again()
            for link in self._home.links:
                link.tick(now)
            now_s = asyncio.get_running_loop().time()
            if self._ends_s:
                self._keepers.flush()
                if now_s > self._ends_s or not any(link.out.behind for link in self._home.links):
                    return
            else:
                is_time = now_s - told_s >= _TELL_S
                if is_time:
                    told_s = now_s
                await self._note(every=is_time)
                self._keepers.flush()
            await asyncio.sleep(_TICK_S)

    async def _note(self, *, every: bool) -> None:
        """Write wanted checkpoints; with *every* also those of topics with messages finished since."""
        wanted, self._home.wants_checkpoint = self._home.wants_checkpoint, {}
        await self._logs.turn()
        for topic in self._logs.topics():
            store = store_of(topic)
            if store is None:
                continue
            owed = size_of(facts.owed_by_any(topic)) if every else -1
            news = every and self._told.get(topic) != owed
            if store in wanted or news:
                may_try = not self._copy.busy and self._logs.troubles.may_try(topic)
                if not (may_try and await self._note_one(topic)):
                    self._home.wants_checkpoint[store] = None
                elif news:
                    self._told[topic] = owed

    async def _note_one(self, topic: Topic) -> bool:
        # Meanwhile nobody else touches its files, not even its home.
        self._copy.busy = True
        try:
            return await self._logs.note_topic(topic)
        finally:
            self._copy.busy = False


class StandsIn:
    """All logs for which this node stands in; `tick` is called some ten times a second."""

    def __init__(
        self,
        carrier: Carrier,
        broker: Broker,
        data: DataPath,
        checkpoints: WritesCheckpoints,
        options: ReplicationOptions,
        log: Log,
        tls: ssl.SSLContext | None,
        *,
        nodes: Callable[[], Awaitable[Sequence[NodeInfo]]],
        ask_turn: Callable[[], None],
        around: Surroundings = OUTSIDE,
    ) -> None:
        self._carrier, self._broker, self._data, self._checkpoints = carrier, broker, data, checkpoints
        self._options, self._log, self._tls = options, log, tls
        self._nodes, self._ask_turn, self._around = nodes, ask_turn, around
        self._troubles = Troubles(around.clock)
        self._standing: dict[bytes, tuple[StandingIn, asyncio.Task[None]]] = {}

    def tick(self, now: int) -> None:
        """Begin to stand in where a home is gone for too long, and end where it is back."""
        carrier = self._carrier
        for identity in {one.identity for one in carrier}.union(self._standing):
            copy = None
            # Even with --replicas=0 it tells other keepers when they may remove copies of a handed-over log.
            wanted = self._options.home.replicas or identity in carrier.inherited
            if wanted and not self._broker.draining:
                copy = succession.stands_in(carrier, identity, now, self._options.patience_ns)
            standing = self._standing.get(identity)
            if standing is None:
                if copy is not None and self._troubles.may_try(identity):
                    self._begin(copy)
            elif standing[0].is_of is not copy:
                if identity in carrier.inherited and is_done_with(standing[0].is_of):
                    standing[0].let_go()
                else:
                    standing[1].cancel()
            if identity in self._standing and self._standing[identity][1].done():
                self._ended(identity)
        carrier.stood_in = set(self._standing)

    def _begin(self, copy: CarriedCopy) -> None:
        try:
            one = StandingIn(
                *(copy, self._carrier, self._data, self._checkpoints, self._options, self._log, self._tls),
                nodes=self._nodes,
                ask_turn=self._ask_turn,
                around=self._around,
            )
        except OSError as error:
            if self._troubles.failed(copy.identity, error):
                self._log.warning(
                    "CARRIED(%s): no keepers can be appointed - %s", copy.identity.hex()[:8], error
                )
            return
        self._troubles.worked(copy.identity)
        task = asyncio.create_task(one.run(), name=f"standing in for {copy.identity.hex()[:8]}")
        self._standing[copy.identity] = one, task

    def _ended(self, identity: bytes) -> None:
        _, task = self._standing.pop(identity)
        if not task.cancelled() and task.exception() is not None:
            self._log.error("CARRIED(%s): standing in failed - %s", identity.hex()[:8], task.exception())

    async def close(self) -> None:
        """End all tasks, because the node stops."""
        tasks = [task for _, task in self._standing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
