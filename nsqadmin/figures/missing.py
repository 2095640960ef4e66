"""Nodes that were there and are not any more, and what they held when they were last seen; PURE."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

# One that held nothing is missed for so long only: a node that was emptied and taken down is no trouble.
EMPTY_S: Final = 600.0
# In a cluster whose nodes get a new address with each start the list has to end somewhere.
MOST_MISSING: Final = 200


@dataclass(frozen=True, slots=True)
class Missing:
    """A node that left: where it was, when it was last seen, and what it had not delivered then."""

    address: str
    hostname: str
    left_s: float
    # When the figures below were taken; None when it never gave any.
    seen_s: float | None
    messages: int
    topics: int
    # What names its data path, where that is known; and who gives out what of its copy.
    identity: str = ""
    carried_by: tuple[str, ...] = ()
    carried_owed: int = 0


@dataclass(slots=True)
class MissingBook:
    """Remembers nodes until they are back or somebody says that they need not be missed."""

    _missing: dict[str, Missing] = field(default_factory=dict)

    def left(self, node: Missing) -> None:
        self._missing.setdefault(node.address, node)
        while len(self._missing) > MOST_MISSING:
            # The one that held least is missed least; among equals the oldest goes.
            least = min(self._missing.values(), key=lambda one: (one.messages, one.left_s))
            del self._missing[least.address]

    def back(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            self._missing.pop(address, None)

    def dismiss(self, address: str) -> bool:
        """Miss it no longer; tell whether it was missed."""
        return self._missing.pop(address, None) is not None

    def at(self, now_s: float) -> list[Missing]:
        """Return who is missed, those that held most first."""
        for one in list(self._missing.values()):
            if not one.messages and now_s - one.left_s > EMPTY_S:
                del self._missing[one.address]
        return sorted(self._missing.values(), key=lambda one: (-one.messages, -one.left_s, one.address))
