"""Nodes that are down, each with its backlog when it was last seen; PURE."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from nsqadmin.stats.instant import Instant

# A node that held nothing is listed for only this long: emptying and removing a node is no problem.
EMPTY_S: Final = 600.0
# Limits the lists in a cluster whose nodes get a new address with each start.
MAX_MISSING: Final = 200


@dataclass(frozen=True, slots=True)
class MissingNode:
    """A node that is down: its address, when it was last seen, and its backlog then."""

    address: str
    hostname: str
    left: Instant
    # The time of the statistics below; None if it never returned any.
    seen: Instant | None
    messages: int
    topics: int
    # Its identity, if known; the nodes that deliver its messages from promoted copies, and how many are left.
    identity: str = ""
    owners: tuple[str, ...] = ()
    pending: int = 0
    # Whether every topic with messages had a replica in sync.
    replicated: bool = False


@dataclass(slots=True)
class MissingNodes:
    """Remembers down nodes until they return, promoted copies are delivered, or an admin dismisses them."""

    _missing: dict[str, MissingNode] = field(default_factory=dict)
    # Nodes with promoted copies, by address: their start time, and the pending messages of each origin.
    _owners: dict[str, tuple[int, Mapping[str, int]]] = field(default_factory=dict)
    # When all messages of an origin were seen to be delivered, in ns as in an Instant; the latest last.
    _delivered: dict[str, int] = field(default_factory=dict)

    def add(self, node: MissingNode) -> None:
        self._missing.setdefault(node.address, node)
        # Its promoted copies are gone with it, not delivered.
        self._owners.pop(node.address, None)
        while len(self._missing) > MAX_MISSING:
            # The node that held least is dropped; among equals the oldest.
            least = min(self._missing.values(), key=lambda one: (one.messages, one.left.at_ns))
            del self._missing[least.address]

    def update(self, address: str, at: Instant, messages: int, topics: int) -> None:
        """Note newer statistics of the node at *address*, if it is not listed but answers."""
        if (one := self._missing.get(address)) is not None:
            self._missing[address] = replace(one, seen=at, messages=messages, topics=topics)

    def back(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            self._missing.pop(address, None)

    def promoted(self, address: str, start_time: int, pending: Mapping[str, int], now: Instant) -> None:
        """Note the promoted copies of the node at *address*: how many messages of each origin are *pending*.

        An origin is delivered when its messages were pending somewhere and are pending nowhere now, or when a
        promoted copy appears with none. After a restart (another *start_time*) a node loads its copies first,
        so a copy that it does not name then is not delivered.
        """
        earlier = self._owners.get(address)
        self._owners[address] = start_time, pending
        if earlier is None or earlier[0] != start_time:
            return
        before = earlier[1]
        everywhere = [pair for _, others in self._owners.values() for pair in others.items()]
        elsewhere = {origin for origin, count in everywhere if count}
        ended = {origin for origin, count in before.items() if count and not pending.get(origin)}
        appeared = {origin for origin, count in pending.items() if not count and origin not in before}
        for origin in (ended | appeared) - elsewhere:
            self._delivered.pop(origin, None)
            self._delivered[origin] = now.at_ns
        while len(self._delivered) > MAX_MISSING:
            del self._delivered[next(iter(self._delivered))]

    def dismiss(self, address: str) -> bool:
        """Forget the node at *address*; tell whether it was listed."""
        return self._missing.pop(address, None) is not None

    def at(self, now: Instant, answering: Collection[str] = ()) -> list[MissingNode]:
        """Return the nodes that are down, most messages first; *answering* are not gone, only not listed."""
        for one in list(self._missing.values()):
            # A node that answers, or was seen later, may have other messages by now.
            delivered_ns = 0 if one.address in answering else self._delivered.get(one.identity, 0)
            delivered = delivered_ns > (one.seen.at_ns if one.seen is not None else 0)
            if delivered or (not one.messages and now.since(one.left) > EMPTY_S):
                del self._missing[one.address]
        return sorted(self._missing.values(), key=lambda one: (-one.messages, -one.left.at_ns, one.address))
