"""Nodes that left the cluster, and what they held when they were last seen; PURE."""

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

from nsqadmin.figures.instant import Instant

# A node that held nothing is listed for only this long: emptying and removing a node is no trouble.
EMPTY_S: Final = 600.0
# Limits the lists in a cluster whose nodes get a new address with each start.
MOST_MISSING: Final = 200


@dataclass(frozen=True, slots=True)
class Missing:
    """A node that left: its address, when it was last seen, and what it had not delivered then."""

    address: str
    hostname: str
    left: Instant
    # When the figures below were taken; None if it never gave any.
    seen: Instant | None
    messages: int
    topics: int
    # The identity of its data path, if known; the nodes that carry its copy, and how many messages they owe.
    identity: str = ""
    carried_by: tuple[str, ...] = ()
    carried_owed: int = 0


@dataclass(slots=True)
class MissingBook:
    """Remembers nodes that left until they are back, delivered from copies, or dismissed by somebody."""

    _missing: dict[str, Missing] = field(default_factory=dict)
    # Nodes that carry others, by address: since when they run, and the identities that they carry.
    _carriers: dict[str, tuple[int, AbstractSet[str]]] = field(default_factory=dict)
    # When an identity was seen to be carried no longer, in ns as in an Instant; the latest last.
    _released: dict[str, int] = field(default_factory=dict)

    def left(self, node: Missing) -> None:
        self._missing.setdefault(node.address, node)
        # What it carried is lost with it; that is not how a carrier says that all is delivered.
        self._carriers.pop(node.address, None)
        while len(self._missing) > MOST_MISSING:
            # The node that held least is dropped; among equals the oldest.
            least = min(self._missing.values(), key=lambda one: (one.messages, one.left.at_ns))
            del self._missing[least.address]

    def seen(self, address: str, at: Instant, messages: int, topics: int) -> None:
        """Note newer figures of the node at *address*, if it left but answers."""
        if (one := self._missing.get(address)) is not None:
            self._missing[address] = replace(one, seen=at, messages=messages, topics=topics)

    def back(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            self._missing.pop(address, None)

    def carries(self, address: str, start_time: int, identities: AbstractSet[str], now: Instant) -> None:
        """Note what the node at *address*, which runs since *start_time*, carries now.

        It gives up what it carried when all is delivered, or when the home or another node has it. After a
        restart it has to read its copies first, so then nothing is known of those that it does not name.
        """
        began, before = self._carriers.pop(address, (start_time, frozenset()))
        if identities:
            self._carriers[address] = start_time, identities
        if began != start_time:
            return
        carried = {identity for _, others in self._carriers.values() for identity in others}
        for identity in before - carried:
            self._released.pop(identity, None)
            self._released[identity] = now.at_ns
        while len(self._released) > MOST_MISSING:
            del self._released[next(iter(self._released))]

    def dismiss(self, address: str) -> bool:
        """Forget the node at *address*; tell whether it was listed."""
        return self._missing.pop(address, None) is not None

    def at(self, now: Instant, answering: Collection[str] = ()) -> list[Missing]:
        """Return the nodes that left, most messages first; *answering* are not gone, only not listed."""
        for one in list(self._missing.values()):
            # A home that answers, or answered later, has its messages back.
            released_ns = 0 if one.address in answering else self._released.get(one.identity, 0)
            delivered = released_ns > (one.seen.at_ns if one.seen is not None else 0)
            if delivered or (not one.messages and now.since(one.left) > EMPTY_S):
                del self._missing[one.address]
        return sorted(self._missing.values(), key=lambda one: (-one.messages, -one.left.at_ns, one.address))
