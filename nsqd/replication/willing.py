"""What a node keeps for others, over all their connections, and which homes it accepts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from nsqd.replication.copies import Copies
from nsqd.replication.fellows import FellowHas
from nsqd.replication.frames import (
    AnyFrame,
    Fellow,
    FellowHello,
    Finished,
    Had,
    Hello,
    Refuse,
    Told,
    other_version,
    same_node_id,
)


class FromHome(Protocol):
    """A connection of a home, as far as it is looked at here; `KeeperLink` is one."""

    hello: Hello | None

    def refuse(self, code: int, sentence: str) -> None:
        """End the connection with one sentence."""

    def taken(self) -> None:
        """Tell the home that its copies are kept permanently."""


Link = TypeVar("Link", bound=FromHome)


@dataclass(slots=True)
class Keeping(Generic[Link]):
    """See the module; *Link* is the class of the connections."""

    copies: Copies
    identity: bytes
    node_id: int
    address: str
    # Secrets are checked before a home is welcomed.
    asks: bool = False
    # Why nothing is kept now, such as a disk that is nearly full; empty when something is. A home with copies
    # here may still come in: one may have what it lost, or be given out here until it comes.
    unwilling: Callable[[], str] = lambda: ""
    # Whether nobody has to let go of the copies of a home before the home goes on with them.
    released: Callable[[bytes], bool] = lambda _identity: True
    # A home was welcomed; or its connection is gone, with True when it has said that it leaves permanently.
    came: Callable[[Link], None] = lambda _link: None
    went: Callable[[Link, bool], None] = lambda _link, _for_good: None
    # Why so many bytes cannot be taken permanently, or empty; and why a home, or a keeper that speaks for it,
    # is not taken back any more, which raises OSError.
    too_much: Callable[[int], str] = lambda _size: ""
    not_back: Callable[[Hello], str] = lambda _hello: ""
    # A home is gone permanently: when that is durable, `KeeperLink.taken` is called.
    given: Callable[[Link, int], None] = lambda link, _appointment: link.taken()
    # A home has deleted a topic, whose copies are about to be removed.
    deleted: Callable[[bytes, str], None] = lambda _identity, _name: None
    # A home says what it has and what is finished.
    heard: Callable[[Link, Had | Finished | Told], None] = lambda _link, _frame: None
    # A home says who keeps for it; another keeper of the same home asks, and is answered with frames.
    fellows: "Callable[[bytes, tuple[Fellow, ...]], None]" = lambda _identity, _keepers: None
    answers: "Callable[[FellowHello, list[FellowHas]], list[AnyFrame]]" = lambda _hello, _copies: []
    links: dict[bytes, Link] = field(default_factory=dict)

    def why_not(self, hello: Hello) -> Refuse | None:
        """Why this home is refused; None when it is accepted. Raises OSError."""
        unknown = other_version(hello.version)
        if unknown is not None:
            return unknown
        if hello.identity == self.identity:
            return Refuse(Refuse.NOT_WANTED, "a node does not keep its own logs")
        gone = self.not_back(hello)
        if gone:
            return Refuse(Refuse.HANDED_OVER, gone)
        unwilling = self.unwilling()
        if unwilling and not self.copies.appointments(hello.identity):
            return Refuse(Refuse.NOT_WANTED, unwilling)
        return self._same_node_id(hello)

    def _same_node_id(self, hello: Hello) -> Refuse | None:
        whose = ""
        if hello.node_id == self.node_id:
            whose = "the keeper"
        for identity, link in self.links.items():
            other = link.hello
            # One node may connect for several logs: its own, and those of others that it has.
            if other is None or identity == hello.identity or other.address == hello.address:
                continue
            if other.node_id == hello.node_id:
                whose = whose or other.address
        return same_node_id(hello.node_id, whose) if whose else None

    def taken(self, hello: Hello) -> Refuse | None:
        """Why another connection has precedence for this identity; None when there is none."""
        before = self.links.get(hello.identity)
        if before is None or before.hello is None or before.hello.address == hello.address:
            return None
        if before.hello.stands_in and not hello.stands_in:
            return None
        if hello.stands_in and not before.hello.stands_in:
            return Refuse(Refuse.HOME_IS_HERE, f"the home {hello.identity.hex()} is here itself")
        return Refuse(
            Refuse.TAKEN,
            f"{before.hello.address} is connected with the identity {hello.identity.hex()}:"
            " one of the two data paths is a copy of the other",
        )

    def connected(self, link: Link, identity: bytes) -> None:
        """Make this the connection of that home; an earlier one ends."""
        before = self.links.get(identity)
        if before is not None and before.hello is not None:
            before.refuse(Refuse.TAKEN, "the home has connected again")
        self.links[identity] = link
