"""What is known of each nsqd and each nsqlookupd, and who of them counts."""

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from nsqadmin.collecting.look import Look, Newer
from nsqadmin.collecting.views import NodeView
from nsqadmin.figures.filling import Filling
from nsqadmin.figures.trend import NodePace
from nsqclient.wire.durations import SECOND
from nsqcore.cluster.discovery import merge_nodes
from nsqcore.cluster.errors import NodeError
from nsqcore.cluster.models import NodeInfo, TopicStats


@dataclass(slots=True)
class Member:
    """One nsqd: how it is listed, its last good figures, and why there are no newer ones.

    ``asked_at`` is where it is asked, which is not where it says it is when nsqds are listed by hand.
    """

    asked_at: str
    producer: NodeInfo | None
    pace: NodePace = field(default_factory=NodePace)
    look: Look | None = None
    error: NodeError | None = None
    silent_since_s: float = 0.0
    # Messages a draining node still owes; None when it is not draining.
    remaining: int | None = None
    # What it owed when its drain was first seen.
    draining_from: int = 0
    # Set when it was asked once, whatever came of it.
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    # Topics that were asked for by themselves since the figures on their way were asked for.
    newer: dict[str, Newer] = field(default_factory=dict)
    # The question for all figures that is on its way, and when it left.
    poll: "asyncio.Task[None] | None" = None
    poll_ns: int = 0
    # When the figures of ``look`` were asked for.
    look_asked_ns: int = 0
    cost_s: float = 0.0
    filling: Filling = field(default_factory=Filling)
    # In how many seconds its disk is full at the pace of now; None while it does not fill up.
    full_in_s: float | None = None

    @property
    def address(self) -> str:
        return self.producer.http_address if self.producer is not None else self.asked_at

    @property
    def asked_s(self) -> float:
        """How long ago the figures that there are were asked for."""
        return (time.monotonic_ns() - self.look_asked_ns) / SECOND

    @property
    def answers(self) -> bool:
        return self.look is not None and self.error is None

    @property
    def tombstoned(self) -> frozenset[str]:
        """Topics of which consumers are not sent to this node."""
        if self.producer is None:
            return frozenset()
        return frozenset(entry.topic for entry in self.producer.topics if entry.tombstoned)

    def view(self, old: Collection[str], *, listed: bool = True) -> NodeView:
        """Return what pages show of it; *old* are the TCP addresses of nodes that run an old version."""
        producer = self.producer or nameless(self.asked_at)
        return NodeView(
            producer,
            producer.tcp_address in old,
            self.look,
            self.error,
            self.silent_since_s,
            self.remaining,
            self.draining_from,
            listed,
            self.full_in_s,
        )

    def drains(self, remaining: int | None) -> None:
        if remaining is not None:
            self.draining_from = max(remaining, self.draining_from if self.remaining is not None else 0)
        self.remaining = remaining

    def failed(self, error: NodeError, at_s: float) -> None:
        if self.error is None:
            self.silent_since_s = at_s
        # It is kept until the node answers again, and its traceback would keep everything in sight of it.
        error.__cause__ = error.__context__ = None
        self.error = error.with_traceback(None)

    def answered(self, look: Look, asked_ns: int) -> None:
        """Take *look* in, which was asked for at *asked_ns*; what is known to be newer stays."""
        for name in [name for name, (at_ns, _) in self.newer.items() if at_ns <= asked_ns]:
            del self.newer[name]
        self.look = look.with_topics(self.newer)
        self.look_asked_ns = asked_ns
        self.full_in_s = self.filling.note(look.at_s, look.disk.free_bytes) if look.disk else None
        self.error = None

    def told(self, topic: str, asked_ns: int, found: tuple[TopicStats, ...]) -> None:
        """Take in what the node holds of one topic, which was asked for at *asked_ns*."""
        known = self.newer.get(topic)
        if self.look is None or asked_ns < self.look_asked_ns or (known is not None and asked_ns < known[0]):
            return
        self.newer[topic] = asked_ns, found
        self.look = self.look.with_topics({topic: self.newer[topic]})


@dataclass(slots=True)
class MemberList:
    """What one nsqlookupd lists: its last good answers, and why there are no newer ones."""

    address: str
    producers: tuple[NodeInfo, ...] = ()
    topics: frozenset[str] = frozenset()
    error: NodeError | None = None
    # What tells the last answers from others, so that the same list need not be read again.
    nodes_digest: bytes = b""
    topics_digest: bytes = b""
    # How long they took to come.
    took_s: float = 0.0


def nameless(address: str) -> NodeInfo:
    """Describe an nsqd that has not said anything yet."""
    host, _, port = address.rpartition(":")
    return NodeInfo(host.strip("[]"), "", 0, int(port), "")


def listed(registers: Iterable[MemberList]) -> list[NodeInfo]:
    """Return the nsqds that *registers* list, those that are down with what they listed last.

    A node that was registered with one nsqlookupd only has not left because that one does not answer.
    """
    return merge_nodes((register.address, register.producers) for register in registers)


def listed_now(registers: Sequence[MemberList]) -> list[NodeInfo]:
    """Return the nsqds that are listed by who answers."""
    return merge_nodes(
        (register.address, register.producers) for register in registers if register.error is None
    )


def registered_topics(registers: Iterable[MemberList]) -> set[str]:
    return {topic for register in registers for topic in register.topics}
