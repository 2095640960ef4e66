"""The nodes of the cluster: listed nodes, nodes that are no longer listed, and which of them answer."""

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from nsqadmin.collecting.answers import UpstreamError
from nsqadmin.collecting.clock import instant
from nsqadmin.collecting.members import LookupdList, Member, listed, nameless, unasked
from nsqadmin.collecting.node_snapshot import NodeSnapshot
from nsqadmin.collecting.work import Work
from nsqadmin.options import OptionsNow
from nsqadmin.stats.instant import Instant
from nsqadmin.stats.missing import MissingNode, MissingNodes
from nsqadmin.stats.versions import out_of_date
from nsqclient.wire.node_error import NodeError
from nsqcore import fields
from nsqcore.cluster.discovery import Discovery, LookupdDiscovery, StaticDiscovery
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.cluster.models import Lookup, NodeInfo
from nsqcore.process.logs import Log

# The list of a thousand nsqds with a thousand topics each is 19 MB and occupies nsqlookupd's only thread for
# a tenth of a second. Every client that monitors the cluster requests it. One client may take this
# share of an nsqlookupd's time.
LIST_SHARE: Final = 0.03
# A new nsqd is seen after at most this time, however large the list is.
MAX_REST_S: Final = 15.0


class Membership:
    """Discovers the nodes on demand; callers during a discovery wait for the same answer."""

    def __init__(
        self,
        http: ClusterHttp,
        options: OptionsNow,
        log: Log,
        work: Work,
        on_listed: Callable[[Member], None],
    ) -> None:
        """*on_listed* is called with each listed node, at each discovery."""
        self._http = http
        self._options = options
        self._log = log
        self._work = work
        self._on_listed = on_listed
        self.lookupd_lists: dict[str, LookupdList] = {}
        self.members: dict[str, Member] = {}
        # Nodes that no nsqlookupd lists any longer; polls continue, so that their return is noticed.
        self.unlisted: dict[str, Member] = {}
        self.missing = MissingNodes()
        self.discovered = asyncio.Event()
        self._discovery: asyncio.Task[None] | None = None
        self._discovery_of: tuple[str, ...] = ()
        # When the latest discovery began, and when the one began whose result is known.
        self._discovery_ns = 0
        self._discovered_ns = 0
        # The same for a discovery of only the names of topics.
        self._naming: asyncio.Task[None] | None = None
        self._naming_ns = 0

    @property
    def uses_lookupd(self) -> bool:
        return bool(self._options().nsqlookupd_http_addresses)

    @property
    def discovery(self) -> Discovery:
        """The discovery that requests the nodes of this moment."""
        options = self._options()
        if options.nsqlookupd_http_addresses:
            return LookupdDiscovery(self._http, options.nsqlookupd_http_addresses)
        return StaticDiscovery(self._http, options.nsqd_http_addresses)

    @property
    def prompt_discovery(self) -> Discovery:
        """The discovery for pages: it sends no requests to unreachable nodes."""
        if self.uses_lookupd:
            answering = [one.address for one in self.configured_lists if one.error is None]
            return LookupdDiscovery(self._http, answering)
        return StaticDiscovery(
            self._http, [one.request_address for one in self.sorted_members if one.error is None]
        )

    @property
    def sorted_members(self) -> list[Member]:
        """The listed nodes by address."""
        return sorted(self.members.values(), key=lambda member: member.address)

    def member(self, address: str) -> Member | None:
        return next((member for member in self.everyone() if member.address == address), None)

    @property
    def configured_lists(self) -> list[LookupdList]:
        """The list of each configured nsqlookupd."""
        addresses = self._options().nsqlookupd_http_addresses
        return [self.lookupd_lists.get(address) or unasked(address) for address in addresses]

    def require_lookupd(self) -> list[LookupdList]:
        """Return the list of each nsqlookupd. Raises UpstreamError if none of them answers."""
        lists = self.configured_lists
        if lists and all(one.error is not None for one in lists):
            raise UpstreamError("nsqlookupd", self.lookupd_errors)
        return lists

    @property
    def lookupd_errors(self) -> tuple[NodeError, ...]:
        """The errors of the nsqlookupds that do not answer."""
        return tuple(one.error for one in self.configured_lists if one.error is not None)

    @property
    def addresses_changed(self) -> bool:
        """Whether the known lists come from other nsqlookupds than the configured ones."""
        return self.uses_lookupd and set(self.lookupd_lists) != set(self._options().nsqlookupd_http_addresses)

    @property
    def pause_s(self) -> float:
        """The shortest pause between two requests to nsqlookupds, in seconds; tiny for a small list."""
        took_s = max((one.took_s for one in self.lookupd_lists.values()), default=0.0)
        return min(MAX_REST_S, took_s / LIST_SHARE)

    @property
    def registered_topics(self) -> set[str]:
        return {topic for one in self.lookupd_lists.values() for topic in one.topics}

    @property
    def owners(self) -> dict[str, list[tuple[str, int]]]:
        """The nodes that deliver messages from promoted copies, by identity of the origin.

        Each comes with the number of messages that are pending there.
        """
        found: dict[str, list[tuple[str, int]]] = {}
        for member in self.members.values():
            if member.answers and member.snapshot is not None and member.snapshot.promoted:
                for identity, pending in member.snapshot.promoted_pending.items():
                    if pending and identity:
                        found.setdefault(identity, []).append((member.address, pending))
        return found

    def everyone(self) -> list[Member]:
        """Return all nodes, including down ones, and note their owners and whether they are out of date."""
        owners = self.owners
        members = [*self.members.values(), *self.unlisted.values()]
        # A fixed list of nsqds is the operator's own choice; only a discovered cluster is checked.
        described = [one.producer for one in self.members.values() if one.is_described]
        old = out_of_date(described) if self.uses_lookupd else set()
        for one in members:
            one.owners = tuple(owners.get(one.producer.identity, ()))
            one.out_of_date = one.producer.tcp_address in old
        return members

    def missed(self, now: Instant) -> list[MissingNode]:
        """Return the nodes that are down, each with the nodes that deliver its messages."""
        owners = self.owners
        return [
            replace(
                one,
                owners=tuple(address for address, _ in owners.get(one.identity, ())),
                pending=sum(pending for _, pending in owners.get(one.identity, ())),
            )
            for one in self._missing_at(now)
        ]

    def _missing_at(self, now: Instant) -> list[MissingNode]:
        return self.missing.at(now, {one.address for one in self.unlisted.values() if one.answers})

    def note_snapshot(self, member: Member, look: NodeSnapshot) -> None:
        """Note the promoted copies on an nsqd in its snapshot, and its messages if it is not listed."""
        self.missing.promoted(member.address, look.start_time, look.promoted_pending, look.at)
        self.missing.update(member.address, look.at, look.load.unfinished, len(look.topics))

    def discover(self) -> asyncio.Future[Any]:
        """Start a discovery, or return the one that is under way."""
        addresses = self._options().nsqlookupd_http_addresses
        if self._discovery is None or self._discovery.done() or self._discovery_of != addresses:
            self._discovery_ns = time.monotonic_ns()
            self._discovery_of = addresses
            self._discovery = self._work.start(self._do_discover(self._discovery_ns), "discovery")
        return self._discovery

    async def discovered_since(self, since_ns: int) -> None:
        """Wait for a discovery that began at *since_ns* or later."""
        while self._discovery is None or self._discovery_ns < since_ns:
            await asyncio.wait({self.discover()})
        await asyncio.wait({self._discovery})

    async def named_since(self, since_ns: int) -> None:
        """Wait for the names of topics, requested at *since_ns* or later."""
        while max(self._discovery_ns, self._naming_ns) < since_ns:
            await asyncio.wait({self.discover_names()})
        for task in (self._discovery, self._naming):
            if task is not None and not task.done():
                await asyncio.wait({task})

    def discover_names(self) -> asyncio.Future[Any]:
        """Discover the names of topics without their nodes, which are megabytes in a large cluster."""
        if self._discovery is not None and not self._discovery.done():
            return self._discovery
        if self._naming is None or self._naming.done():
            self._naming_ns = time.monotonic_ns()
            self._naming = self._work.start(self._request_names(), "names of topics")
        return self._naming

    async def _request_names(self) -> None:
        async def ask(one: LookupdList) -> None:
            lookupd = LookupdApi(self._http, one.address)
            try:
                topics = await lookupd.fetch("/topics")
                if (digest := _digest(topics)) != one.topics_digest:
                    names = lookupd.read("/topics", topics, lambda answer: fields.names(answer, "topics"))
                    one.topics, one.topics_digest = frozenset(names), digest
            except NodeError as error:
                self.lookupd_lists[one.address] = self._silent(one, error)

        await asyncio.gather(*(ask(one) for one in self.lookupd_lists.values() if one.error is None))

    def _silent(self, known: LookupdList, error: NodeError) -> LookupdList:
        if known.error is None:
            self._log.warning("nsqlookupd %s does not answer: %s", known.address, error)
        error.__cause__ = error.__context__ = None
        return replace(known, error=error.with_traceback(None))

    async def discover_now(self) -> None:
        """Discover with requests that are sent after this call."""
        if self._discovery is not None and not self._discovery.done():
            await asyncio.gather(self._do_discover(time.monotonic_ns()))
        else:
            await self.discover()

    async def _do_discover(self, asked_ns: int) -> None:
        options = self._options()
        if not options.nsqlookupd_http_addresses:
            self._follow(dict.fromkeys(options.nsqd_http_addresses))
            self.discovered.set()
            return
        addresses = options.nsqlookupd_http_addresses
        lists = {address: self.lookupd_lists.get(address) or LookupdList(address) for address in addresses}
        answers = await asyncio.gather(*(self._request_list(one) for one in lists.values()))
        if self._options().nsqlookupd_http_addresses != addresses or asked_ns < self._discovered_ns:
            # The answers come from other nsqlookupds, or are older than the known ones.
            return
        self._discovered_ns = asked_ns
        self.lookupd_lists = {one.address: one for one in answers}
        self._follow({producer.http_address: producer for producer in listed(answers)})
        self.discovered.set()

    async def _request_list(self, known: LookupdList) -> LookupdList:
        lookupd = LookupdApi(self._http, known.address)
        try:
            began = time.monotonic()
            nodes, topics = await asyncio.gather(lookupd.fetch("/nodes"), lookupd.fetch("/topics"))
            took_s = time.monotonic() - began
            producers, names = known.producers, known.topics
            digests = _digest(nodes), _digest(topics)
            if digests[0] != known.nodes_digest:
                producers = await self._work.in_thread(
                    lambda: lookupd.read("/nodes", nodes, Lookup.from_json).producers
                )
            if digests[1] != known.topics_digest:
                names = frozenset(
                    lookupd.read("/topics", topics, lambda answer: fields.names(answer, "topics"))
                )
        except NodeError as error:
            return self._silent(known, error)
        if known.error is not None:
            self._log.info("nsqlookupd %s answers again", known.address)
        return LookupdList(known.address, producers, names, None, *digests, took_s)

    def _follow(self, found: dict[str, NodeInfo | None]) -> None:
        """Make the nodes in *found* the members; *found* maps each address to how it is listed."""
        now = instant()
        for address, producer in found.items():
            member = self.members.get(address) or self.unlisted.pop(address, None)
            if member is None:
                member = Member(address, producer or nameless(address), producer is not None)
            elif producer is not None:
                member.producer, member.is_described = producer, True
            member.listed = True
            self.members[address] = member
            self._on_listed(member)
        for address in list(self.members):
            if address not in found:
                self._lose(self.members.pop(address), now)
        self.missing.back(found)
        missed = {one.address for one in self._missing_at(now)}
        for address in list(self.unlisted):
            if address not in missed:
                del self.unlisted[address]

    def _lose(self, member: Member, now: Instant) -> None:
        if not self.uses_lookupd:
            return
        look = member.snapshot
        gone = MissingNode(
            address=member.address,
            hostname=member.producer.hostname,
            left=now,
            seen=look.at if look is not None else None,
            messages=look.load.unfinished if look is not None else 0,
            topics=len(look.topics) if look is not None else 0,
            identity=member.producer.identity,
            replicated=look is not None and look.is_replicated,
        )
        self._log.warning("nsqd %s left with %d messages", gone.address, gone.messages)
        self.missing.add(gone)
        member.listed = False
        self.unlisted[member.address] = member


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()
