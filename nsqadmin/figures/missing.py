"""Nodes that left the cluster, and what they held when they were last seen; PURE."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

# A node that held nothing is listed for only this long: emptying and removing a node is no trouble.
EMPTY_S: Final = 600.0
# Limits the list in a cluster whose nodes get a new address with each start.
MOST_MISSING: Final = 200


@dataclass(frozen=True, slots=True)
class Missing:
    """A node that left: its address, when it was last seen, and what it had not delivered then."""

    address: str
    hostname: str
    left_s: float
    # When the figures below were taken; None if it never gave any.
    seen_s: float | None
    messages: int
    topics: int
    # The identity of its data path, if known; the nodes that carry its copy, and how many messages they owe.
    identity: str = ""
    carried_by: tuple[str, ...] = ()
    carried_owed: int = 0


@dataclass(slots=True)
class MissingBook:
    """Remembers nodes that left until they are back or somebody dismisses them."""

    _missing: dict[str, Missing] = field(default_factory=dict)

    def left(self, node: Missing) -> None:
        self._missing.setdefault(node.address, node)
        while len(self._missing) > MOST_MISSING:
            # The node that held least is dropped; among equals the oldest.
            least = min(self._missing.values(), key=lambda one: (one.messages, one.left_s))
            del self._missing[least.address]

    def back(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            self._missing.pop(address, None)

    def dismiss(self, address: str) -> bool:
        """Forget the node at *address*; tell whether it was listed."""
        return self._missing.pop(address, None) is not None

    def at(self, now_s: float) -> list[Missing]:
        """Return the nodes that left, those that held most first."""
        for one in list(self._missing.values()):
            if not one.messages and now_s - one.left_s > EMPTY_S:
                del self._missing[one.address]
        return sorted(self._missing.values(), key=lambda one: (-one.messages, -one.left_s, one.address))
