"""Asks every nsqd and nsqlookupd once per interval, whoever looks, and keeps the last good answers."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, Self, TypeVar

from nsqadmin.collecting.look import Look
from nsqadmin.collecting.members import Member, Register, listed
from nsqadmin.figures.missing import Missing, MissingBook
from nsqadmin.figures.sums import ClusterSum, Share, TopicSum, add_up
from nsqadmin.options import NsqadminOptions, OptionsNow
from nsqcore.cluster.errors import NodeError
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.cluster.models import Lookup, NodeInfo, NodeStats, Registration
from nsqcore.cluster.nsqd_api import NsqdApi, stats_params
from nsqcore.service.durations import SECOND
from nsqcore.service.logs import Log
from nsqcore.wire import fields

T = TypeVar("T")

# Nobody looks when nobody has asked for so long; then the cluster is asked less often.
WATCHED_S: Final = 60.0
UNWATCHED_FACTOR: Final = 5
# Collecting takes at most this much of a processor: in a cluster that costs more, figures are older.
SHARE: Final = 0.15
# The longest a reader waits for figures, at the start and after a change. What is missing then comes later.
PATIENCE_S: Final = 1.0
# Whether a node is draining changes rarely, and asking costs a request of its own.
DRAIN_EVERY: Final = 4
# Below this an answer is parsed in less time than a thread is woken.
_SMALL_BODY: Final = 32_768
# Memory figures make Go's nsqd stop for a moment, and nobody shows them.
_PARAMS: Final = (*stats_params(include_clients=False), ("include_mem", "false"))


class Collector:
    """The cluster as it was a moment ago. One per process; everything but parsing happens on its loop."""

    def __init__(self, http: ClusterHttp, options: OptionsNow, log: Log) -> None:
        self._http = http
        self._options = options
        self._log = log
        self.registers: dict[str, Register] = {}
        self.members: dict[str, Member] = {}
        # Nodes that no nsqlookupd lists any more; asked on, so that it is known when they are back.
        self.unlisted: dict[str, Member] = {}
        self.missing = MissingBook()
        self.sum = ClusterSum({})
        # Ends with the error of a task that was not meant to end.
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._discovered = asyncio.Event()
        self._added_up = asyncio.Event()
        self._somebody_looks = asyncio.Event()
        self._looked_at = time.monotonic()
        self._lookups_changed = 0
        self._sum_cost_s = 0.0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._asking: dict[str, asyncio.Task[None]] = {}
        # One thread: parsing takes turns with the event loop, not with itself.
        self._thread = ThreadPoolExecutor(1, "figures")

    async def __aenter__(self) -> Self:
        self.start(self._keep_discovering(), "discovery")
        self.start(self._keep_adding_up(), "sums")
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._thread.shutdown(cancel_futures=True)

    # -- what others ask of it ------------------------------------------------------

    @property
    def uses_lookupd(self) -> bool:
        return bool(self._options().nsqlookupd_http_addresses)

    async def ready(self) -> None:
        """Note that somebody looks, and wait a moment when there is nothing to show yet."""
        self._looked_at = time.monotonic()
        self._somebody_looks.set()
        if self.uses_lookupd and self._addresses_changed():
            self.start(self.discover(), "discovery")
        if not self._added_up.is_set():
            await self.within(self._added_up.wait(), 2 * PATIENCE_S)

    async def refresh(self, topic: str) -> None:
        """Ask afresh for one topic, after it was changed or when nobody has heard of it."""
        self._lookups_changed += 1
        for member in self.members.values():
            member.changes += 1
        await self.within(self._discover_and_ask(topic))

    async def within(self, work: Awaitable[Any], seconds: float = PATIENCE_S) -> None:
        """Wait for *work*, but not for long; it goes on without who waits."""
        task = self.start(_as_coroutine(work), "refresh")
        await asyncio.wait({task}, timeout=seconds)

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Do what takes the processor for long where the event loop does not wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def nsqd(self, member: Member) -> NsqdApi:
        return NsqdApi(self._http, member.asked_at)

    # -- who is there -----------------------------------------------------------------

    async def discover(self) -> None:
        """Learn who belongs to the cluster."""
        options = self._options()
        if not options.nsqlookupd_http_addresses:
            self._follow(dict.fromkeys(options.nsqd_http_addresses))
            self._discovered.set()
            return
        addresses = options.nsqlookupd_http_addresses
        began = self._lookups_changed
        registers = {address: self.registers.get(address) or Register(address) for address in addresses}
        answers = await asyncio.gather(*(self._ask_register(one) for one in registers.values()))
        if began != self._lookups_changed or options.nsqlookupd_http_addresses != addresses:
            # Something was changed meanwhile; these answers may be from before it.
            return
        self.registers = {register.address: register for register in answers}
        self._follow({producer.http_address: producer for producer in listed(answers)})
        self._discovered.set()

    async def _ask_register(self, known: Register) -> Register:
        lookupd = LookupdApi(self._http, known.address)
        try:
            nodes, topics = await asyncio.gather(lookupd.fetch("/nodes"), lookupd.fetch("/topics"))
            producers, names = known.producers, known.topics
            if nodes != known.nodes_body:
                producers = await self.in_thread(
                    lambda: lookupd.read("/nodes", nodes, Lookup.from_json).producers
                )
            if topics != known.topics_body:
                names = frozenset(
                    lookupd.read("/topics", topics, lambda answer: fields.names(answer, "topics"))
                )
        except NodeError as error:
            if known.error is None:
                self._log.warning("nsqlookupd %s does not answer: %s", known.address, error)
            error.__cause__ = error.__context__ = None
            return replace(known, error=error.with_traceback(None))
        if known.error is not None:
            self._log.info("nsqlookupd %s answers again", known.address)
        return Register(known.address, producers, names, None, nodes, topics)

    def _addresses_changed(self) -> bool:
        return set(self.registers) != set(self._options().nsqlookupd_http_addresses)

    def _follow(self, found: dict[str, NodeInfo | None]) -> None:
        """Make the members who is in *found*, which tells for each address how it is listed."""
        now_s = time.time()
        for address, producer in found.items():
            member = self.members.get(address) or self.unlisted.pop(address, None)
            if member is None:
                member = Member(address, producer)
            elif producer is not None:
                member.producer = producer
            self.members[address] = member
            self._keep_asking_of(member)
        for address in list(self.members):
            if address not in found:
                self._lose(self.members.pop(address), now_s)
        self.missing.back(found)
        missed = {one.address for one in self.missing.at(now_s)}
        for address in list(self.unlisted):
            if address not in missed:
                del self.unlisted[address]

    def _lose(self, member: Member, now_s: float) -> None:
        if not self.uses_lookupd:
            return
        look = member.look
        gone = Missing(
            address=member.address,
            hostname=member.producer.hostname if member.producer is not None else "",
            left_s=now_s,
            seen_s=look.at_s if look is not None else None,
            messages=look.load.owed if look is not None else 0,
            topics=len(look.topics) if look is not None else 0,
        )
        self._log.warning("nsqd %s left with %d messages", gone.address, gone.messages)
        self.missing.left(gone)
        self.unlisted[member.address] = member

    # -- what they hold -----------------------------------------------------------------

    async def ask(self, member: Member) -> None:
        """Get the figures of one nsqd."""
        nsqd = self.nsqd(member)
        began = member.changes
        try:
            if not self.uses_lookupd and (member.producer is None or member.error is not None):
                member.producer = _described(await nsqd.info(), member.asked_at)
            body = await nsqd.fetch_stats(_PARAMS)
            look = await self._look(member, nsqd, body)
        except NodeError as error:
            if member.error is None:
                self._log.warning("nsqd %s gives no figures: %s", member.address, error)
            member.failed(error, time.time())
        else:
            if began == member.changes:
                if member.error is not None:
                    self._log.info("nsqd %s gives figures again", member.address)
                member.answered(look)
                if not self.uses_lookupd and member.producer is not None:
                    topics = tuple(Registration(name) for name in sorted(look.topics))
                    member.producer = replace(member.producer, topics=topics)
        member.asked.set()

    async def _look(self, member: Member, nsqd: NsqdApi, body: bytes) -> Look:
        at_ns, at_s = time.monotonic_ns(), time.time()

        def read() -> Look:
            began = time.thread_time()
            look = Look.of(nsqd.read_stats(body, _PARAMS), member.pace, at_ns, at_s)
            # What arrives costs about as much as what is parsed.
            member.cost_s = 2 * (time.thread_time() - began)
            return look

        return read() if len(body) < _SMALL_BODY else await self.in_thread(read)

    async def _ask_draining(self, member: Member) -> None:
        nsqd = self.nsqd(member)
        try:
            draining = await nsqd.is_draining()
            member.drains(await nsqd.drain_remaining() if draining else None)
        except NodeError:
            # Its figures say whether it answers; this is only about draining.
            return

    async def _discover_and_ask(self, topic: str) -> None:
        await self.discover()
        members = [member for member in self.members.values() if member.answers]
        await asyncio.gather(*(self._ask_topic(member, topic) for member in members))
        shares = self._shares(topic)
        self.sum = self.sum.changed(topic, add_up(topic, shares) if shares else None)

    async def _ask_topic(self, member: Member, topic: str) -> None:
        began = member.changes
        try:
            stats: NodeStats = await self.nsqd(member).stats(topic=topic, include_clients=False)
        except NodeError as error:
            member.failed(error, time.time())
            return
        if member.look is not None and began == member.changes:
            member.look = member.look.with_topic(topic, stats.topics)
            # A poll on its way was asked before this answer.
            member.changes += 1

    # -- adding up -----------------------------------------------------------------------

    def _shares(self, topic: str) -> list[Share]:
        return [
            (member.look.topics[topic], member.look.marks, member.look.at_ns)
            for member in self.members.values()
            if member.answers
            and member.look
            and topic in member.look.topics
            and topic not in member.tombstoned
        ]

    async def _add_up(self) -> None:
        looks = [(member.look, member.tombstoned) for member in self.members.values() if member.answers]
        changes = self._lookups_changed

        def work() -> tuple[ClusterSum, float]:
            began = time.thread_time()
            shares: dict[str, list[Share]] = {}
            for look, tombstoned in looks:
                if look is None:
                    continue
                for name, stats in look.topics.items():
                    if name not in tombstoned:
                        shares.setdefault(name, []).append((stats, look.marks, look.at_ns))
            total = ClusterSum({name: add_up(name, found) for name, found in shares.items()})
            # Worked out here, so that no reader has to wait for it.
            _ = total.rows, total.concerns, total.rate
            return total, time.thread_time() - began

        total, self._sum_cost_s = await self.in_thread(work)
        if changes == self._lookups_changed:
            self.sum = total

    def idle_topics(self) -> list[str]:
        """Return topics that are registered, but that no nsqd has."""
        names = {topic for register in self.registers.values() for topic in register.topics}
        return sorted(names - self.sum.topics.keys())

    def topic_sum(self, name: str) -> TopicSum | None:
        return self.sum.topics.get(name)

    # -- the tasks -----------------------------------------------------------------------

    @property
    def interval_s(self) -> float:
        """How long one round takes now: as configured, or longer where that would cost too much."""
        options: NsqadminOptions = self._options()
        chosen = options.collect_interval / SECOND
        if time.monotonic() - self._looked_at > WATCHED_S:
            chosen *= UNWATCHED_FACTOR
        cost_s = self._sum_cost_s + sum(member.cost_s for member in self.members.values())
        return max(chosen, cost_s / SHARE)

    async def _rest(self) -> None:
        """Wait for the next turn; a little unevenly, so that nodes are not all asked at the same moment."""
        watched = time.monotonic() - self._looked_at <= WATCHED_S
        if watched:
            await asyncio.sleep(self.interval_s * random.uniform(0.9, 1.1))
            return
        self._somebody_looks.clear()
        try:
            async with asyncio.timeout(self.interval_s):
                await self._somebody_looks.wait()
        except TimeoutError:
            return

    async def _keep_discovering(self) -> None:
        while True:
            await self.discover()
            await self._rest()

    def _keep_asking_of(self, member: Member) -> None:
        task = self._asking.get(member.asked_at)
        if task is None or task.done():
            task = self.start(self._keep_asking(member.asked_at), f"nsqd {member.asked_at}")
            self._asking[member.asked_at] = task

    async def _keep_asking(self, address: str) -> None:
        turn = random.randrange(DRAIN_EVERY)
        while (member := self.members.get(address) or self.unlisted.get(address)) is not None:
            await self.ask(member)
            if member.answers and (turn % DRAIN_EVERY == 0 or member.remaining is not None):
                await self._ask_draining(member)
            turn += 1
            await self._rest()

    async def _keep_adding_up(self) -> None:
        await self._discovered.wait()
        first = [self.start(member.asked.wait(), "first look") for member in self.members.values()]
        if first:
            await asyncio.wait(first, timeout=PATIENCE_S)
        while True:
            await self._add_up()
            self._added_up.set()
            await self._rest()

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None or self.broken.done():
            return
        self.broken.set_exception(error)


async def _as_coroutine(work: Awaitable[T]) -> T:
    return await work


def _described(info: NodeInfo, asked_at: str) -> NodeInfo:
    """Complete what an nsqd says of itself: an old one does not tell where it is reached, but we know."""
    host, _, port = asked_at.rpartition(":")
    host = host.strip("[]")
    if not info.broadcast_address:
        info = replace(info, broadcast_address=host, http_port=int(port))
    return info if info.hostname else replace(info, hostname=host)
