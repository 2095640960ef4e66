"""Asks every nsqd and nsqlookupd once per interval, whoever looks, and keeps the last good answers."""

import asyncio
import hashlib
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, Self, TypeVar

from nsqadmin.collecting.look import Look
from nsqadmin.collecting.members import Member, MemberList, listed
from nsqadmin.collecting.views import Round
from nsqadmin.figures.attention import Concern, ConcernKey, of_lookupds, of_missing, worst_first
from nsqadmin.figures.limits import limited, parse_limit
from nsqadmin.figures.missing import Missing, MissingBook
from nsqadmin.figures.sums import ClusterSum, Share, TopicSum, add_up
from nsqadmin.figures.troubles import TroubleBook
from nsqadmin.options import NsqadminOptions, OptionsNow
from nsqclient.wire import fields
from nsqclient.wire.durations import SECOND
from nsqcore.cluster.errors import NodeError
from nsqcore.cluster.fanout import ask_all
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.cluster.models import Lookup, NodeInfo, NodeStats, Registration
from nsqcore.cluster.nsqd_api import NsqdApi, stats_params
from nsqcore.process.logs import Log

T = TypeVar("T")

# Nobody looks when nobody has asked for so long; then the cluster is asked less often.
WATCHED_S: Final = 60.0
UNWATCHED_FACTOR: Final = 5
HISTORY_S: Final = 5.0
# Collecting takes at most this much of a processor: in a cluster that costs more, figures are older.
SHARE: Final = 0.15
# The longest a reader waits for figures, at the start and after a change. What is missing then comes later.
PATIENCE_S: Final = 1.0
# Programs ask once, and get figures that are at most so old.
FRESH_S: Final = 1.0
# Where all figures take a while to get they are not got more often than every so many times of it.
MOST_FRESH: Final = 3.0
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
        self.registers: dict[str, MemberList] = {}
        self.members: dict[str, Member] = {}
        # Nodes that no nsqlookupd lists any more; asked on, so that it is known when they are back.
        self.unlisted: dict[str, Member] = {}
        self.missing = MissingBook()
        self.sum = ClusterSum({})
        # What needs attention, the worst first.
        self.troubles: tuple[Concern, ...] = ()
        # Who takes in each round, one after the other.
        self.followers: list[Callable[[Round], Awaitable[None]]] = []
        self._told: dict[ConcernKey, Concern] = {}
        # Ends with the error of a task that was not meant to end.
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._discovered = asyncio.Event()
        self._added_up = asyncio.Event()
        self._somebody_looks = asyncio.Event()
        self._looked_at = time.monotonic()
        self._discovery: asyncio.Task[None] | None = None
        self._discovery_of: tuple[str, ...] = ()
        # When who is there was asked for, and when what is known of it was.
        self._discovery_ns = 0
        self._discovered_ns = 0
        # Topics that were changed here, and when; those asked for by themselves lately.
        self._changed: dict[str, int] = {}
        self._topic_asked: dict[str, tuple[int, asyncio.Task[None]]] = {}
        self._book = TroubleBook()
        self._limits = [parse_limit(text) for text in options().alert_limits]
        self._sum_cost_s = 0.0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._asking: dict[str, asyncio.Task[None]] = {}
        # One thread: parsing takes turns with the event loop, not with itself.
        self._thread = ThreadPoolExecutor(1, "figures")
        # What readers ask for does not wait for what is parsed.
        self._readers = ThreadPoolExecutor(1, "readers")

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
        self._readers.shutdown(cancel_futures=True)

    # -- what others ask of it ------------------------------------------------------

    @property
    def uses_lookupd(self) -> bool:
        return bool(self._options().nsqlookupd_http_addresses)

    async def ready(self) -> None:
        """Note that somebody looks, and wait a moment when there is nothing to show yet."""
        self._looked_at = time.monotonic()
        self._somebody_looks.set()
        if self.uses_lookupd and self._addresses_changed():
            # What is known is of other nsqlookupds.
            await self.within(self._discover(), self._patience_s)
        if not self._added_up.is_set():
            await self.within(self._added_up.wait(), 2 * PATIENCE_S)

    async def changed(self, topic: str) -> None:
        """Have what was just changed about *topic* show; what is on its way of all other topics is kept."""
        await self.within(self._follow_change(topic))

    async def fresh_list(self, age_s: float = FRESH_S) -> None:
        """Wait until who is there was asked for not longer than *age_s* ago."""
        if not self.uses_lookupd:
            await self.fresh_figures(age_s)
        elif time.monotonic_ns() - self._discovery_ns > age_s * SECOND:
            await self.within(self._discover(), self._patience_s)

    async def fresh_topic(self, topic: str, age_s: float = FRESH_S) -> None:
        """Wait until the figures of *topic* were asked for not longer than *age_s* ago."""
        now_ns = time.monotonic_ns()
        for name in [name for name, one in self._topic_asked.items() if now_ns - one[0] > FRESH_S * SECOND]:
            if self._topic_asked[name][1].done():
                del self._topic_asked[name]
        known = self._topic_asked.get(topic)
        if known is None or now_ns - known[0] > age_s * SECOND:
            known = now_ns, self.start(self._ask_holders(topic), "topic")
            self._topic_asked[topic] = known
        await asyncio.wait({known[1]}, timeout=self._patience_s)

    async def fresh_figures(self, age_s: float = FRESH_S) -> None:
        """Wait until every node that answers was asked for its figures not longer than *age_s* ago.

        In a cluster where that costs much it may be longer ago.
        """
        age_s = max(age_s, MOST_FRESH * sum(member.cost_s for member in self.members.values()))
        polls = {self._poll(member, age_s) for member in self.members.values() if member.error is None}
        if polls:
            await asyncio.wait(polls, timeout=self._patience_s)

    @property
    def _patience_s(self) -> float:
        options = self._options()
        return (options.http_client_connect_timeout + options.http_client_request_timeout) / SECOND

    async def within(self, work: Awaitable[Any], seconds: float = PATIENCE_S) -> None:
        """Wait for *work*, but not for long; it goes on without who waits."""
        task = self.start(_as_coroutine(work), "refresh")
        await asyncio.wait({task}, timeout=seconds)

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Do what takes the processor for long where the event loop does not wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def for_reader(self, call: Callable[[], T]) -> T:
        """Do what takes the processor for a while for somebody who waits for it."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, call)

    def nsqd(self, member: Member) -> NsqdApi:
        return NsqdApi(self._http, member.asked_at)

    # -- who is there -----------------------------------------------------------------

    def _discover(self) -> asyncio.Future[Any]:
        """Learn who belongs to the cluster; who asks while somebody is learning it waits for the same."""
        addresses = self._options().nsqlookupd_http_addresses
        if self._discovery is None or self._discovery.done() or self._discovery_of != addresses:
            self._discovery_ns = time.monotonic_ns()
            self._discovery_of = addresses
            self._discovery = self.start(self._do_discover(self._discovery_ns), "discovery")
        return self._discovery

    async def _do_discover(self, asked_ns: int) -> None:
        options = self._options()
        if not options.nsqlookupd_http_addresses:
            self._follow(dict.fromkeys(options.nsqd_http_addresses))
            self._discovered.set()
            return
        addresses = options.nsqlookupd_http_addresses
        registers = {address: self.registers.get(address) or MemberList(address) for address in addresses}
        answers = await asyncio.gather(*(self._ask_register(one) for one in registers.values()))
        if self._options().nsqlookupd_http_addresses != addresses or asked_ns < self._discovered_ns:
            # Of other nsqlookupds, or older than what is known.
            return
        self._discovered_ns = asked_ns
        self.registers = {register.address: register for register in answers}
        self._follow({producer.http_address: producer for producer in listed(answers)})
        self._discovered.set()

    async def _ask_register(self, known: MemberList) -> MemberList:
        lookupd = LookupdApi(self._http, known.address)
        try:
            nodes, topics = await asyncio.gather(lookupd.fetch("/nodes"), lookupd.fetch("/topics"))
            producers, names = known.producers, known.topics
            digests = _digest(nodes), _digest(topics)
            if digests[0] != known.nodes_digest:
                producers = await self.in_thread(
                    lambda: lookupd.read("/nodes", nodes, Lookup.from_json).producers
                )
            if digests[1] != known.topics_digest:
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
        return MemberList(known.address, producers, names, None, *digests)

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

    def _poll(self, member: Member, age_s: float = 0.0) -> asyncio.Task[None]:
        """Ask one nsqd for its figures, unless that is being done, or was done less than *age_s* ago."""
        now_ns = time.monotonic_ns()
        if member.poll is None or (member.poll.done() and now_ns - member.poll_ns >= age_s * SECOND):
            member.poll_ns = now_ns
            member.poll = self.start(self._ask(member, now_ns), f"figures of {member.asked_at}")
        return member.poll

    async def _ask(self, member: Member, asked_ns: int) -> None:
        nsqd = self.nsqd(member)
        try:
            if not self.uses_lookupd and (member.producer is None or member.error is not None):
                member.producer = _described(await nsqd.info(), member.asked_at)
            body = await nsqd.fetch_stats(_PARAMS)
            look = await self._look(member, nsqd, body)
        except NodeError as error:
            self._failed(member, error)
        else:
            if member.error is not None:
                self._log.info("nsqd %s gives figures again", member.address)
            member.answered(look, asked_ns)
            if not self.uses_lookupd and member.producer is not None:
                topics = tuple(
                    Registration(name) for name in sorted(member.look.topics if member.look else ())
                )
                member.producer = replace(member.producer, topics=topics)
        member.asked.set()

    def _failed(self, member: Member, error: NodeError) -> None:
        if member.error is None:
            self._log.warning("nsqd %s gives no figures: %s", member.address, error)
        member.failed(error, time.time())

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

    async def _follow_change(self, topic: str) -> None:
        asked_ns = time.monotonic_ns()
        if self._discovery is not None and not self._discovery.done():
            # It may have been asked before the change.
            await asyncio.gather(self._do_discover(asked_ns))
        else:
            await self._discover()
        members = [member for member in self.members.values() if member.answers]
        asking = {self.start(self._ask_topic(member, topic), "topic") for member in members}
        # What most nodes say shows, even where one of them takes its time.
        for patience_s in (PATIENCE_S / 2, None):
            if asking:
                _, asking = await asyncio.wait(asking, timeout=patience_s)
            self._changed[topic] = time.monotonic_ns()
            self.sum = self._with_changed(self.sum, 0)
            if not asking:
                return

    async def _ask_holders(self, topic: str) -> None:
        """Ask who is known to have *topic*, and who nsqlookupd says has it."""
        addresses = {member.address for member in self.members.values() if self._has(member, topic)}
        lookupds = [one.address for one in self.registers.values() if one.error is None]
        found = await ask_all(
            [LookupdApi(self._http, one) for one in lookupds], lambda one: one.lookup(topic)
        )
        for _, lookup in found.value:
            addresses |= {producer.http_address for producer in lookup.producers}
        members = [
            member for member in self.members.values() if member.address in addresses and member.answers
        ]
        await asyncio.gather(*(self._ask_topic(member, topic) for member in members))

    def _has(self, member: Member, topic: str) -> bool:
        return member.look is not None and topic in member.look.topics

    async def _ask_topic(self, member: Member, topic: str) -> None:
        asked_ns = time.monotonic_ns()
        try:
            stats: NodeStats = await self.nsqd(member).stats(topic=topic, include_clients=False)
        except NodeError as error:
            self._failed(member, error)
            return
        member.told(topic, asked_ns, stats.topics)

    # -- adding up -----------------------------------------------------------------------

    def _shares(self, topic: str) -> list[Share]:
        return [
            member.look.share(topic, member.address)
            for member in self.members.values()
            if member.answers
            and member.look
            and topic in member.look.topics
            and topic not in member.tombstoned
        ]

    async def _add_up(self) -> None:
        looks = [
            (member.look, member.tombstoned, member.address)
            for member in self.members.values()
            if member.answers and member.look is not None
        ]
        registered = self._registered_topics()
        began_ns = time.monotonic_ns()

        def work() -> tuple[ClusterSum, float]:
            began = time.thread_time()
            shares: dict[str, list[Share]] = {}
            for look, tombstoned, address in looks:
                marks, at_ns, later = look.marks, look.at_ns, look.later_ns
                for name, stats in look.topics.items():
                    if name not in tombstoned:
                        share = stats, marks, later.get(name, at_ns), address
                        shares.setdefault(name, []).append(share)
            topics = {name: add_up(name, found) for name, found in shares.items()}
            total = ClusterSum(topics, registered - topics.keys())
            # Worked out here, so that no reader has to wait for it.
            _ = total.rows, total.concerns, total.totals
            return total, time.thread_time() - began

        total, self._sum_cost_s = await self.in_thread(work)
        now_s = time.time()
        found = limited(total, [*self._node_concerns(now_s), *total.concerns], self._limits)
        self.troubles = tuple(worst_first(self._book.note(found, now_s)))
        total.show(self.troubles)
        self.sum = self._with_changed(total, began_ns)
        await self._tell(now_s)

    async def _tell(self, now_s: float) -> None:
        """Have those who follow the cluster take in this round."""
        known, self._told = self._told, {one.key: one for one in self.troubles}
        views = tuple(member.view(()) for member in self.members.values())
        this = Round(
            now_s,
            self.sum,
            views,
            self.troubles,
            tuple(one for key, one in self._told.items() if key not in known),
            tuple(one for key, one in known.items() if key not in self._told),
        )
        for follow in self.followers:
            await follow(this)

    def _with_changed(self, total: ClusterSum, since_ns: int) -> ClusterSum:
        """Return *total* with the topics as they are that were changed later than *since_ns*."""
        for topic, changed_ns in list(self._changed.items()):
            if changed_ns < since_ns:
                del self._changed[topic]
                continue
            shares = self._shares(topic)
            now = add_up(topic, shares) if shares else None
            found = self._book.note(now.concerns if now is not None else (), time.time(), topic)
            if now is not None:
                now.show(found)
            self.troubles = tuple(
                worst_first([*(one for one in self.troubles if one.topic != topic), *found])
            )
            idle = set(total.idle) - {topic}
            if now is None and topic in self._registered_topics():
                idle.add(topic)
            total = total.changed(topic, now, idle)
        return total

    def _registered_topics(self) -> set[str]:
        return {topic for register in self.registers.values() for topic in register.topics}

    def _node_concerns(self, now_s: float) -> list[Concern]:
        """Judge all nodes: those that are listed, those that are not but answer, and those that left."""
        found = [concern for member in self.members.values() for concern in member.view(()).concerns]
        answering = set()
        for member in self.unlisted.values():
            if member.answers:
                answering.add(member.address)
                found += member.view((), listed=False).concerns
        found += [of_missing(one, now_s) for one in self.missing.at(now_s) if one.address not in answering]
        silent = [(one.address, one.error.reason) for one in self.registers.values() if one.error is not None]
        return [*found, *of_lookupds(silent, len(self.registers))]

    def dismiss(self, node: str) -> bool:
        """Miss a node that left no longer; tell whether it was missed."""
        self.troubles = tuple(one for one in self.troubles if (one.mark, one.node) != ("left", node))
        return self.missing.dismiss(node)

    def topic_sum(self, name: str) -> TopicSum | None:
        return self.sum.topics.get(name)

    # -- the tasks -----------------------------------------------------------------------

    @property
    def interval_s(self) -> float:
        """How long one round takes now: as configured, or longer where that would cost too much."""
        options: NsqadminOptions = self._options()
        chosen = options.collect_interval / SECOND
        if time.monotonic() - self._looked_at > WATCHED_S:
            rare = UNWATCHED_FACTOR * chosen
            # The history has a place for each five seconds.
            chosen = max(chosen, min(rare, HISTORY_S)) if options.history else rare
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
            await self._discover()
            await self._rest()

    def _keep_asking_of(self, member: Member) -> None:
        task = self._asking.get(member.asked_at)
        if task is None or task.done():
            task = self.start(self._keep_asking(member.asked_at), f"nsqd {member.asked_at}")
            self._asking[member.asked_at] = task

    async def _keep_asking(self, address: str) -> None:
        turn = random.randrange(DRAIN_EVERY)
        while (member := self.members.get(address) or self.unlisted.get(address)) is not None:
            await self._poll(member)
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


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


async def _as_coroutine(work: Awaitable[T]) -> T:
    return await work


def _described(info: NodeInfo, asked_at: str) -> NodeInfo:
    """Complete what an nsqd says of itself: an old one does not tell where it is reached, but we know."""
    host, _, port = asked_at.rpartition(":")
    host = host.strip("[]")
    if not info.broadcast_address:
        info = replace(info, broadcast_address=host, http_port=int(port))
    return info if info.hostname else replace(info, hostname=host)
