"""The problems of the cluster, each with the sentence that says why; PURE.

A problem describes one moment. :mod:`nsqadmin.stats.problem_tracker` decides whether a page shows it, and
since when it lasts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from nsqadmin.stats.activity import LastConsumers
from nsqadmin.stats.instant import Instant
from nsqadmin.stats.missing import MissingNode
from nsqadmin.stats.present import duration, named, per_second, plural, size
from nsqadmin.stats.trend import Trend

# A smaller growing queue is a batch on its way, not a trend.
_GROWTH_DEPTH: Final = 100
# Growth below this share of the arriving messages is noise between two polls.
_GROWTH_SHARE: Final = 0.05
# Only after this long does "none finished" mean that consumers are stuck.
_STUCK_S: Final = 5.0
# Messages in flight may be worked on for this long, nsqd's usual --msg-timeout.
_BUSY_S: Final = 60.0
# Consumers ask nsqlookupd for new nodes once a minute, so a new node may lack consumers for this long.
FOUND_S: Final = 65.0
# A consumer that may have fewer messages in flight than there are nodes takes turns between the nodes.
_TURNS_S: Final = 300.0
# A queue counts as growing only if it grows in more than one poll.
_GROWS_S: Final = 3.0
# A queue that grows is a burst while its oldest waiting message is younger.
_OLD_S: Final = 60.0
# The disk's level is warning below either LOW limit (a share, or bytes), and problem below FULL.
_DISK_LOW: Final = 0.10
_DISK_LOW_BYTES: Final = 4_000_000_000
_DISK_FULL: Final = 0.02
# Badges that compare two polls stay for this long after they were last seen, so that they do not flicker.
_STAYS_S: Final = 6.0


# A channel that finishes hardly more than its dead letters rejects every message.
_ALL_DEAD: Final = 1.05


DISK: Final = "disk"
DEAD_LETTERS: Final = "dead letters"
NO_CONSUMERS: Final = "no consumers"
UNDER_REPLICATED: Final = "under-replicated"
# A topic's or channel's problem begins at level warning. After so long it becomes problem, and an alert.
ALERT_S: Final = 60.0
# The badges of problems with reaching a node. A node has at most one of them.
REACH: Final = frozenset({"unreachable", "no statistics", "down", "not registered"})
# The badges of problems whose level is always warning.
MILD: Final = frozenset({"paused", "timing out", "no channel", "draining", "returned", "no nodes"})


class Level(IntEnum):
    """The level of a problem; larger is worse."""

    WARNING = 1
    PROBLEM = 2


# Two problems are the same if these are equal: badge, topic, channel and node.
ProblemKey = tuple[str, str, str, str]


class When(NamedTuple):
    """Times of a problem in seconds: its duration when first seen, and the delay until it is shown.

    Its level becomes problem after ``alert_s``. It stays shown for ``stays_s`` after it was last seen.
    """

    been_s: float = 0.0
    shown_s: float = 0.0
    alert_s: float = 0.0
    stays_s: float = 0.0


_IMMEDIATE: Final = When()


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem: ``kind`` is its badge of one or two words, ``text`` the whole sentence.

    ``weight`` orders problems of one level, usually by the number of messages.
    """

    level: Level
    kind: str
    text: str
    topic: str = ""
    channel: str = ""
    node: str = ""
    weight: float = 0.0
    messages: int = 0
    when: When = _IMMEDIATE
    # When it began, if known; otherwise ProblemTracker decides.
    began: Instant | None = None
    # Why it cannot be evaluated now: then its last known state is shown. Empty if it was evaluated.
    last_known: str = ""
    # The last consumers of a channel that has none.
    consumers: LastConsumers | None = None

    @property
    def key(self) -> ProblemKey:
        return self.kind, self.topic, self.channel, self.node

    @property
    def sentence(self) -> str:
        """The text, with the reason if it is the last known state."""
        return f"{self.text} (last known: {self.last_known})" if self.last_known else self.text

    @property
    def since_s(self) -> float:
        """The time of day at which it began; zero if that is not known."""
        return 0.0 if self.began is None else self.began.at_s

    def to_json(self) -> dict[str, str | int]:
        place = {"topic": self.topic, "channel": self.channel, "node": self.node}
        shown: dict[str, str | int] = {
            "level": self.level.name.lower(),
            "state": self.kind,
            "text": self.text,
            **({"last_known": self.last_known} if self.last_known else {}),
            **({"last_consumers": self.consumers.names} if self.consumers else {}),
            **{key: name for key, name in place.items() if name},
        }
        return shown | ({"since": int(self.since_s)} if self.since_s else {})


class ShareState(NamedTuple):
    """The state of a channel on one node where messages wait."""

    node: str
    depth: int
    consumers: int
    in_flight: int
    # Messages that consumers finish there per second, None if unknown; and the span of the measurement.
    finished: float | None
    span_s: float
    grows: float


class DiskState(NamedTuple):
    """Free and total bytes of a disk, -1 if not known, and seconds until it is full, if it fills up."""

    free: int = -1
    total: int = -1
    full_in_s: float | None = None


class Queue(Protocol):
    """The statistics that the evaluation of a channel needs."""

    topic_name: str
    channel_name: str
    depth: int
    in_flight_count: int
    client_count: int
    dead_count: int
    oldest_ns: int
    paused: bool


def _of_queue(channel: Queue, level: Level, kind: str, text: str, messages: int, when: When) -> Problem:
    place = channel.topic_name, channel.channel_name
    return Problem(level, kind, text, *place, weight=messages, messages=messages, when=when)


def problems_of_channel(
    channel: Queue, trend: Trend | None, shares: Sequence[ShareState] = (), now_s: float = 0.0
) -> list[Problem]:
    """Evaluate a channel by its total over all nodes and by *shares*, the nodes with a backlog.

    *now_s* is the time of day, from which the age of the oldest pending message follows.
    """
    found: list[Problem] = []
    # Most channels of a large cluster need no further checks.
    quiet = trend is None or (trend.timeouts <= 0 and trend.dead <= 0)
    if quiet and not channel.depth and not channel.paused:
        return found

    def note(
        level: Level, kind: str, text: str, messages: int = channel.depth, when: When = _IMMEDIATE
    ) -> None:
        found.append(_of_queue(channel, level, kind, text, messages, when))

    waiting = _waiting(channel.depth)
    grows = trend is not None and trend.depth > max(1.0, trend.messages * _GROWTH_SHARE)
    growing = f", {per_second(trend.depth)} more each second" if trend is not None and grows else ""
    if channel.paused:
        note(Level.WARNING, "paused", f"{waiting}{growing}" if channel.depth else "No messages wait")
    elif channel.depth and not channel.client_count:
        note(
            Level.PROBLEM,
            NO_CONSUMERS,
            f"{waiting}, no consumers{growing}",
            when=When(alert_s=ALERT_S),
        )
    elif channel.depth and trend is not None and trend.span_s >= _STUCK_S and not trend.finished:
        note(
            Level.PROBLEM,
            "stuck",
            f"{waiting} and {plural(channel.client_count, 'consumer')}"
            f" finish{'es' if channel.client_count == 1 else ''} none{growing}",
            when=When(
                trend.span_s,
                _BUSY_S if channel.in_flight_count and trend.timeouts <= 0 else _STUCK_S,
                ALERT_S,
                _STAYS_S,
            ),
        )
    elif (
        trend is not None
        and grows
        and channel.depth >= _GROWTH_DEPTH
        and _waited_s(channel.oldest_ns, channel.depth, trend.finished, now_s) >= _OLD_S
    ):
        note(
            Level.PROBLEM,
            "growing",
            f"{waiting}{growing}: {plural(channel.client_count, 'consumer')} finish"
            f"{'es' if channel.client_count == 1 else ''} {per_second(trend.finished)}"
            f" of {per_second(trend.messages)} a second",
            when=When(shown_s=_GROWS_S, alert_s=ALERT_S, stays_s=_STAYS_S),
        )
    if trend is not None and trend.timeouts > 0:
        note(
            Level.WARNING,
            "timing out",
            f"{per_second(trend.timeouts)} messages/s time out",
            when=When(stays_s=_STAYS_S),
        )
    if trend is not None and trend.dead > 0:
        every = trend.finished <= trend.dead * _ALL_DEAD
        share = "Every message becomes a dead letter" if every else "Messages become dead letters"
        note(
            Level.PROBLEM,
            DEAD_LETTERS,
            f"{share}: {per_second(trend.dead)} a second, {channel.dead_count:,} since the nodes started",
            channel.dead_count,
            When(alert_s=ALERT_S, stays_s=_STAYS_S),
        )
    if not channel.paused and channel.client_count:
        found += _of_shares(channel, shares, {problem.kind for problem in found})
    return found


def _of_shares(channel: Queue, shares: Sequence[ShareState], known: set[str]) -> list[Problem]:
    """Evaluate single nodes of a channel: the total over all nodes would hide their problems."""
    found: list[Problem] = []

    def note(kind: str, of: Sequence[ShareState], text: str, when: When = _IMMEDIATE) -> None:
        if not of or kind in known:
            return
        messages = sum(share.depth for share in of)
        text = f"{_waiting(messages)} on {named(share.node for share in of)}{text}"
        found.append(_of_queue(channel, Level.PROBLEM, kind, text, messages, when))

    bare = [share for share in shares if not share.consumers]
    note(
        NO_CONSUMERS,
        bare,
        ", no consumers there, while other nodes have consumers",
        When(alert_s=FOUND_S),
    )
    still = [
        share
        for share in shares
        if share.consumers and share.finished is not None and not share.finished and share.span_s >= _STUCK_S
    ]
    if len(shares) > 1:
        note(
            "stuck",
            still,
            " and the consumers there finish none",
            When(min((share.span_s for share in still), default=0.0), _BUSY_S, _TURNS_S, _STAYS_S),
        )
        fuller = [
            share
            for share in shares
            if share.consumers
            and share.depth >= _GROWTH_DEPTH
            and share.finished
            and share.grows > 0
            and share.depth / share.finished >= _OLD_S
        ]
        note(
            "growing",
            fuller,
            f", {per_second(sum(share.grows for share in fuller))} more each second there",
            When(0.0, _BUSY_S, _TURNS_S, _STAYS_S),
        )
    return found


def _waited_s(oldest_ns: int, depth: int, finished: float, now_s: float) -> float:
    """Return how long the oldest message has waited; if that is not known, how long the last one will."""
    if oldest_ns > 0 and now_s:
        return now_s - oldest_ns / 1e9
    return depth / finished if finished else float("inf")


def grows_there(depth: float, messages: float) -> float:
    """Return how fast a queue on one node grows per second; zero if the growth is noise between two polls."""
    return depth if depth > max(1.0, messages * _GROWTH_SHARE) else 0.0


def _waiting(messages: int) -> str:
    return f"{plural(messages, 'message')} {'waits' if messages == 1 else 'wait'}"


def problems_of_topic(name: str, own_depth: int, *, paused: bool, has_channels: bool) -> list[Problem]:
    """Evaluate a topic by its own queue; its channels are evaluated separately."""
    if not paused and (not own_depth or has_channels):
        return []
    waiting = _waiting(own_depth)
    if paused:
        text = f"{waiting} in the topic" if own_depth else "No messages wait"
        return [Problem(Level.WARNING, "paused", text, name, weight=own_depth, messages=own_depth)]
    if name.removesuffix("#ephemeral").endswith(".dead"):
        text = f"{plural(own_depth, 'dead letter')} to inspect, send back or delete"
        return [Problem(Level.WARNING, DEAD_LETTERS, text, name, weight=own_depth, messages=own_depth)]
    text = f"{waiting} in the topic, because it has no channel yet"
    return [Problem(Level.WARNING, "no channel", text, name, weight=own_depth, messages=own_depth)]


def problems_of_node(
    address: str,
    *,
    silent: str = "",
    refuses: bool = False,
    held: int = 0,
    health: str = "OK",
    remaining: int | None = None,
    listed: bool = True,
    under_replicated: int = 0,
    owners: Sequence[str] = (),
    pending: int = 0,
    disk: DiskState = DiskState(),  # noqa: B008 - it never changes
) -> list[Problem]:
    """Evaluate an nsqd.

    *silent* is why it returns no statistics; with *refuses* it returns something else. *held* is the
    number of messages that it had not delivered at its last answer, *health* its own report. *remaining* is
    the number of messages left while it drains, *listed* whether consumers find it. *under_replicated* is how
    many of its topics have fewer replicas in sync than wanted. *owners* deliver its messages from promoted
    copies, where *pending* of them are left.
    """
    found: list[Problem] = []

    def note(level: Level, kind: str, text: str, messages: int = 0) -> None:
        found.append(Problem(level, kind, text, node=address, weight=float("inf"), messages=messages))

    if silent:
        last = f"; it held {plural(held, 'message')} when it last did" if held else ""
        problem = "nsqd answers, but gives no statistics" if refuses else "nsqd does not answer"
        note(
            Level.PROBLEM,
            "no statistics" if refuses else "unreachable",
            f"{problem} ({silent}){last}; {_delivered_by(owners, pending) or 'totals are without it'}",
            0 if owners else held,
        )
    elif health not in {"", "OK"}:
        note(Level.PROBLEM, "unhealthy", f"nsqd reports bad health: {health}")
    if remaining is not None and not silent:
        text = f"nsqd is draining: it takes no messages, and {plural(remaining, 'message')} remain"
        note(Level.WARNING, "draining", text + ("s" if remaining == 1 else ""), remaining)
    if not silent and (low := _low_disk(disk)):
        note(low, DISK, _disk_text(disk))
    if under_replicated:
        verb = "has" if under_replicated == 1 else "have"
        text = f"{plural(under_replicated, 'topic')} {verb} fewer replicas in sync than wanted"
        note(Level.PROBLEM, UNDER_REPLICATED, text)
    if not listed and not silent:
        text = "nsqd answers, but no nsqlookupd lists it: consumers do not find it"
        note(Level.PROBLEM, "not registered", text)
    return found


def _low_disk(disk: DiskState) -> Level | None:
    if disk.free < 0 or disk.total <= 0:
        return None
    if disk.free < disk.total * _DISK_FULL:
        return Level.PROBLEM
    return Level.WARNING if disk.free < max(disk.total * _DISK_LOW, _DISK_LOW_BYTES) else None


def _disk_text(disk: DiskState) -> str:
    # 99.9 % is not full yet.
    used = int(100 * (1 - disk.free / disk.total))
    text = f"Disk is {used} % full: {size(disk.free)} of {size(disk.total)} free"
    if disk.full_in_s is not None:
        text += f", full in about {duration(disk.full_in_s * 1e9, whole=True)}"
    return f"{text}. nsqd refuses publishes when it is full"


def problem_of_returned(address: str, depths: Sequence[int]) -> Problem:
    """Evaluate a returned nsqd that has channels with *depths* messages and no consumers yet."""
    text = f"nsqd is back, and {plural(len(depths), 'channel')} with {plural(sum(depths), 'message')} there"
    text += " still has no consumers" if len(depths) == 1 else " still have no consumers"
    return Problem(Level.WARNING, "returned", text, node=address, messages=sum(depths), weight=sum(depths))


def problem_of_no_nodes() -> Problem:
    """Evaluate a cluster without any nsqd."""
    return Problem(Level.WARNING, "no nodes", "Nothing can be published or consumed until an nsqd registers")


def problems_of_lookupds(silent: Sequence[tuple[str, str]], number: int) -> list[Problem]:
    """Evaluate *number* nsqlookupds: *silent* are addresses and reasons of those that do not answer."""
    everyone = len(silent) == number
    level = Level.PROBLEM if everyone else Level.WARNING
    rest = (
        "no nsqlookupd does: consumers find no nodes, and new nodes are not seen here"
        if everyone
        else "the others do, so consumers still find their nodes"
    )
    return [
        Problem(
            level,
            "nsqlookupd down",
            f"nsqlookupd does not answer ({reason}); {rest}",
            node=address,
            weight=float("inf") if everyone else 0.0,
        )
        for address, reason in silent
    ]


def _delivered_by(owners: Sequence[str], pending: int) -> str:
    """Say which nodes deliver the messages of a node that is down; empty if none does."""
    if not owners:
        return ""
    return f"its messages are delivered by {named(owners)} ({plural(pending, 'message')} pending there)"


def problem_of_missing(node: MissingNode, now: Instant) -> Problem:
    """Evaluate an nsqd that is down."""
    ago = duration(max(0.0, now.since(node.left)) * 1e9, whole=True)
    if node.seen is None:
        text = f"Down for {ago}. Its messages are unknown"
        if node.owners:
            text += f"; {_delivered_by(node.owners, node.pending)}"
    elif node.owners:
        held = f"Down for {ago} with {plural(node.messages, 'message')}"
        text = f"{held}; {_delivered_by(node.owners, node.pending)}"
    elif node.messages:
        until = "a replica takes over, or it is back" if node.replicated else "it is back"
        text = (
            f"Down for {ago}. {plural(node.messages, 'message')} in {plural(node.topics, 'topic')}"
            f" {'is' if node.messages == 1 else 'are'} unavailable until {until}"
        )
    else:
        text = f"Down for {ago}. It had no messages"
    harmless = bool(node.owners) or (node.seen is not None and not node.messages)
    level = Level.WARNING if harmless else Level.PROBLEM
    weight = float("inf") if level is Level.PROBLEM else 0.0
    return Problem(
        level,
        "down",
        text,
        node=node.address,
        weight=weight,
        messages=0 if node.owners else node.messages,
        began=node.left,
    )


def worst_first(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(
        problems,
        key=lambda problem: (-problem.level, -problem.weight, problem.topic, problem.channel, problem.node),
    )


def worst_level(problems: Iterable[Problem]) -> Level | None:
    return max((problem.level for problem in problems), default=None)
