"""Nodes of a site that leave permanently: nsqd's own `Departure`, with a site's time and connections."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from nsqd.engine.topic import Topic
from nsqd.replication import handed_over
from nsqd.replication.choosing import Appointed, Candidate
from nsqd.replication.handed_over import HandedOver
from nsqd.replication.home import Home, HomeSettings
from nsqd.replication.home_link import HomeLink, HomeState
from nsqd.replication.keeper import KeeperLink
from nsqd.replication.serving import CopyPhase
from nsqd.replication.succession import stands_in
from nsqd.server.replication.departure import Departure
from nsqd.server.replication.handing import has_heard
from nsqd.server.replication.leaving import Surroundings
from nsqd.server.replication.left_behind import NotTold, leave_behind
from nsqd.server.replication.standing_in import StandsIn
from nsqd.server.replication.wanted import ReplicationOptions
from nsqd.storage.reservation import Reservation
from nsqd.storage.topic_store import store_of
from tests.support.simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    from tests.campaign.carried.node import CarryingNode

DATA: Final = Path("/data")
_SECOND: Final = 1_000_000_000
# How many steps a task may do in one moment.
_TURNS: Final = 6
_IN_FLIGHT_S: Final = 20.0


class Killed(KeyboardInterrupt):
    """The process is killed in the middle of a call of its disk."""


class TickLoop(asyncio.BaseEventLoop):
    """An event loop that runs only in ``go``; jobs for threads run at once."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__()
        self._clock = clock
        self._selector = self
        self.failures: list[str] = []
        self.in_job = False
        self._killed: Killed | None = None
        self.set_exception_handler(lambda _loop, context: self.failures.append(str(context)))

    def __del__(self) -> None:  # type: ignore[override]
        """A site may be dropped without closing its loops, because they hold no system resources."""
        if not self.is_closed():
            self.close()

    def time(self) -> float:
        return self._clock() / _SECOND

    def select(self, _timeout: float | None) -> list[Any]:
        return []

    def _process_events(self, event_list: list[Any]) -> None: ...

    def _write_to_self(self) -> None: ...

    def run_in_executor(  # type: ignore[override]
        self, _executor: Executor | None, job: Callable[..., Any], *arguments: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        self.in_job = True
        try:
            future.set_result(job(*arguments))
        except Killed as killed:
            # The process is dead, so nothing more runs.
            self._killed = killed
            self.stop()
        except Exception as error:  # noqa: BLE001 - the future passes it on
            future.set_exception(error)
        finally:
            self.in_job = False
        return future

    @property
    def may_be_killed(self) -> bool:
        """Say whether a kill here ends a task as a process would end, without its cleanup."""
        return self.in_job or not self.is_running()

    def go(self) -> None:
        """Run everything that is ready at this moment. Raises Killed."""
        for _ in range(_TURNS):
            self.call_soon(self.stop)
            self.run_forever()
            killed, self._killed = self._killed, None
            if killed is not None:
                raise killed


@dataclass
class _Connection:
    link: HomeLink

    def go_on(self) -> None: ...


class SiteLinking:
    """The part of `Linking` that a hand-over needs; the site makes the connection."""

    def __init__(
        self,
        home: Home,
        appointed: Appointed,
        *_parts: object,
        tls: object = None,
        heard: Callable[[Appointed, str], None] = lambda _appointed, _identity: None,
        visit: bool = False,
    ) -> None:
        self.home, self.appointed, self.visit = home, appointed, visit
        self.connection: _Connection | None = None
        self.problem, self.refused = "not connected yet", 0
        self.offers: Callable[[], int] | None = None
        # Whether the task that keeps the connection has begun, and whether it has ended.
        self.begun = False
        self.over = False
        self._heard = heard

    def hand_over(self, size: Callable[[], int]) -> None:
        self.offers, self.refused = size, 0
        if self.connection is not None:
            self.connection.link.offer(size())

    def connected(self, link: HomeLink) -> None:
        self.connection, self.refused = _Connection(link), 0
        if self.offers is not None:
            link.offer(self.offers())

    def ended(self) -> None:
        if self.connection is not None:
            link, self.connection = self.connection.link, None
            self.appointed, self.refused, self.problem = link.appointed, link.refused, link.reason

    def met(self) -> None:
        link = None if self.connection is None else self.connection.link
        if link is not None and link.keeper is not None:
            self.appointed = link.appointed
            if self.problem and not self.visit:
                self._heard(self.appointed, link.keeper.identity.hex())
            self.problem = ""

    async def run(self) -> None:
        """Wait until this task is cancelled; the site makes the connection meanwhile."""
        self.begun = True
        try:
            await asyncio.sleep(1e9)
        finally:
            self.over = True


class _Says:
    def __init__(self, said: list[str]) -> None:
        self.said = said

    def info(self, text: str, *parts: object) -> None:
        self.said.append(text % parts)

    warning = error = info


class SiteCheckpoints:
    """The part of `Checkpoints` that is needed to write single checkpoints."""

    def __init__(self, node: "CarryingNode") -> None:
        self._node = node

    async def write_at_once(self, topic: Topic) -> bool:
        store = store_of(topic)
        if store is None:
            return False
        topic.take_changed()
        try:
            job = self._node.write_checkpoint(topic, store)
        except OSError:
            return False
        else:
            self._node.home.checkpointed(store, job)
            return True
        finally:
            topic.changed = True

    @asynccontextmanager
    async def at_rest(self, _topic: Topic) -> AsyncIterator[None]:
        yield


class Standing:
    """Lets a node stand in for homes that do not come back, with nsqd's own `StandsIn`."""

    def __init__(
        self,
        node: "CarryingNode",
        replicas: int,
        patience_ns: int,
        named: tuple[str, ...],
        others: Callable[[], list[Any]],
        connects: list[SiteLinking],
    ) -> None:
        """*others* are the keepers that nsqlookupd lists; the site makes the connections in *connects*.

        *named* are the addresses of all nodes.
        """
        self._node, self._patience_ns = node, patience_ns
        self._connects = connects
        self.loop = TickLoop(lambda: node.now)
        self._begun = False
        self._made: list[SiteLinking] = []

        async def nodes() -> list[Any]:
            return others()

        self._stands = StandsIn(
            *(node.carrier, node.broker, node.data, SiteCheckpoints(node)),
            ReplicationOptions(
                HomeSettings(replicas=replicas), node.number, node.address, named, patience_ns=patience_ns
            ),
            _Says(node.said),  # type: ignore[arg-type]
            None,
            nodes=nodes,
            ask_turn=node.turn,
            around=Surroundings(self._connect, lambda: node.now),  # type: ignore[arg-type]
        )

    def _connect(self, *parts: Any, **more: Any) -> SiteLinking:
        made = SiteLinking(*parts, **more)
        self._connects.append(made)
        self._made.append(made)
        return made

    def go(self) -> None:
        """Run what is due at the present time."""
        node, carrier = self._node, self._node.carrier
        homes = {one.identity for one in carrier if one.phase is CopyPhase.CARRIED}
        wants = any(stands_in(carrier, one, node.now, self._patience_ns) for one in homes)
        if not wants and not self._begun:
            return
        self.loop.call_soon(self._stands.tick, node.now)
        self.loop.go()
        self._begun = bool(carrier.stood_in)
        if not self._begun:
            for one in self._made:
                # Also if its task ended before it began.
                one.over = True
            self._made.clear()
        node.broken += self.loop.failures
        self.loop.failures.clear()

    def end(self) -> None:
        """End with the process."""
        if self._begun:
            task = self.loop.create_task(self._stands.close())
            for _ in range(20):
                if task.done():
                    break
                self.loop.go()
        self.loop.close()


class Leaving:
    """The departure of one node; it is forgotten when the process ends."""

    def __init__(
        self, node: "CarryingNode", others: Callable[[], list[str]], connects: list[SiteLinking]
    ) -> None:
        """*others* are possible takers, the best first; the site makes the connections in *connects*."""
        self.node = node
        self._others = others
        self._connects = connects
        # The connection to the taker of the node's own logs, and a taker that the home no longer connects to.
        self.linking: SiteLinking | None = None
        self.left = ""
        self.options = SimpleNamespace(node_id=node.number, address=node.address, home=HomeSettings())
        self.loop = TickLoop(lambda: node.now)
        self.departure = Departure(
            node.broker,
            node.data,
            self,  # type: ignore[arg-type]
            node.carrier,
            SiteCheckpoints(node),
            _Says(node.said),  # type: ignore[arg-type]
            tls=None,
            send_away=node.send_away,
            ask_turn=node.turn,
            around=Surroundings(self._connect, lambda: node.now),  # type: ignore[arg-type]
        )

    def begin(self, to: str) -> None:
        """Begin the hand-over as the operator asks, possibly again."""
        self.node.broker.draining = True
        self.loop.call_soon(self.departure.begin, to, _IN_FLIGHT_S)
        self.go()

    def go(self) -> None:
        """Run what is due at the present time."""
        if self.linking is not None:
            self.linking.met()
        self.loop.go()
        self.node.broken += self.loop.failures
        self.loop.failures.clear()
        task = self.departure._task
        if task is not None and task.done() and not task.cancelled() and task.exception() is not None:
            # An exception that Departure does not handle is a fault.
            self.node.broken.append(f"hand-over: {task.exception()!r}")

    def cancel(self) -> bool:
        """Cancel the hand-over if that is still allowed; say whether it was cancelled."""
        if not self.departure.may_be_cancelled:
            return False
        self._cancel()
        self.node.broker.draining = False
        return True

    def _cancel(self) -> None:
        task = self.loop.create_task(self.departure.cancel())
        for _ in range(20):
            if task.done():
                break
            self.loop.go()

    def end(self) -> None:
        """End with the process."""
        self._cancel()
        self.loop.close()

    @property
    def state(self) -> str:
        return self.departure.progress.state

    @property
    def told(self) -> str:
        """Return the progress, and the current problem."""
        progress = self.departure.progress
        return f"{progress.state}, {progress.what} to {progress.to}, {progress.problem or 'no problem'}"

    # --- the part of `Replication` that `Departure` needs ---

    @property
    def home(self) -> Home:
        return self.node.home

    @property
    def appointments(self):  # type: ignore[no-untyped-def]
        return self.node.file.appointments

    async def takers(self) -> list[str]:
        return self._others()

    def take_on(self, address: str) -> SiteLinking:
        with self.node.file.change() as known:
            one = next((one for one in known.current if one.address == address), None)
            one = one or known.appoint(Candidate(address))
        self.node.chooses = False
        self.node.home.addresses = {one.address for one in known.current}
        self.linking = SiteLinking(self.node.home, one)
        return self.linking

    def dismiss_taker(self) -> None:
        self.linking = None
        self.node.chooses = True

    def leave_taker(self) -> None:
        self.left, self.linking = self.linking.appointed.address if self.linking else "", None

    def _connect(self, *parts: Any, **more: Any) -> SiteLinking:
        made = SiteLinking(*parts, **more)
        self._connects.append(made)
        return made


# --- the next start ---


def begin_again(
    disk: SimulatedDisk,
    reservation: Reservation,
    number: int,
    nodes: "dict[int, CarryingNode]",
    reach: Callable[[int, int], bool],
    rng: random.Random,
) -> None:
    """Do what a start does before anything is loaded. Raises NotTold."""

    async def tell(note: HandedOver, home: Home, *_parts: object) -> None:
        taker = nodes.get(int(note.to[1:].partition(":")[0]))
        if taker is None or not reach(number, taker.number):
            raise NotTold(f"{note.to}: nobody answers")
        if _told(note, home, taker, rng):
            return
        known = home.identity in taker.carrier.inherited
        if not (known or taker.keeping.copies.appointments(home.identity)):
            # The taker has lost its disk; operators know that and remove the note.
            handed_over.remove(disk, DATA if home.identity == reservation.named() else _folder(home.identity))
        raise NotTold(f"{note.to}: it does not say that it has it")

    loop = TickLoop(lambda: 0)
    try:
        loop.run_until_complete(
            leave_behind(
                disk,
                DATA,
                reservation,
                number,
                f"n{number}:4150",
                bytes,
                _Says([]),
                None,
                tell,  # type: ignore[arg-type]
            )
        )
    finally:
        loop.close()


def _folder(identity: bytes) -> Path:
    return DATA / "carried" / identity.hex()


def _told(note: HandedOver, home: Home, taker: "CarryingNode", rng: random.Random) -> bool:
    """Tell the taker, on a connection that may be cut at any step; say whether it has acknowledged."""
    link = HomeLink(home, Appointed(note.appointment, note.to), taker.now, visit=True)
    kept = KeeperLink(taker.keeping)
    said = False
    for _ in range(rng.choice((0, 1, 2, 3, 50, 50, 50, 50))):
        if link.closing or link.taken:
            break
        if link.state is HomeState.VISITING and not said:
            link.hand_over(note.appointment)
            said = True
        kept.receive(b"".join(link.flush(taker.now)))
        while jobs := kept.jobs():
            for job in jobs:
                job.run(taker.disk)
                kept.ended(job, None)
        taker.meet()
        data, kept.out = b"".join(kept.out), []
        if data:
            link.receive(data, taker.now)
    link.end("told")
    kept.closed()
    return has_heard(link, note)
