"""Everything of a node that is copied: its logs, the keepers that count for each, and waiting publishers.

A `Home` taps all logs of a node. Each connection to a keeper is a `HomeLink`, of which a `Home` knows what
`Linked` says.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from nsqd.engine.facts import ChannelFacts
from nsqd.log.ranges import Ranges
from nsqd.log.segment import Segment
from nsqd.log.tap import Tap
from nsqd.log.writer import LogWriter
from nsqd.replication.choosing import Appointed
from nsqd.replication.frames import AnyFrame, Fellow
from nsqd.replication.linked import Linked
from nsqd.replication.streams import LetGo
from nsqd.replication.waits import Wait
from nsqd.storage.slots import CheckpointJob

_S: Final = 1_000_000_000
# How many files that a log let go of in this life are remembered.
_MOST_GONE: Final = 4096


@dataclass(frozen=True, slots=True)
class HomeSettings:
    """The settings that the options give."""

    replicas: int = 0
    # Publishers are refused while too few keepers are linked.
    refuse: bool = False
    strict: bool = False
    timeout_ns: int = 2 * _S
    # Bytes in a second.
    fill_rate: int = 50 << 20
    # Returns the secret for a new connection; by default there is none.
    secret: Callable[[], bytes] = bytes


class _TappedLog(Tap):
    """A log of this node: what is written to it goes to all connections."""

    def __init__(self, home: "Home", log: LogWriter, name: str) -> None:
        self.name = name
        # Its files that were let go of in this life, by name.
        self.gone: dict[str, LetGo] = {}
        self._home = home
        self._log = log

    def appended(self, segment: Segment, offset: int, pieces: list[bytes]) -> None:
        for link in self._home.links:
            link.appended(self._log, segment, offset, pieces)

    def let_go(self, segments: list[Segment]) -> None:
        for segment in segments:
            self.gone[segment.path.name] = LetGo(segment.header.salt, segment.size)
        while len(self.gone) > _MOST_GONE:
            del self.gone[next(iter(self.gone))]
        for link in self._home.links:
            link.look_at(self._log)

    def lost(self) -> None:
        """The next connection finds that the copy has more than the home, and leaves it as it is."""
        for link in self._home.links:
            link.end("files of the log were removed by somebody")

    def deleted(self) -> None:
        self._home.deleted(self._log)


class Home:
    """Everything of this node that is copied; see the module."""

    def __init__(
        self,
        settings: HomeSettings,
        identity: bytes,
        node_id: int,
        address: str,
        *,
        again: Callable[[Appointed, int], Appointed],
        replicas_of: Callable[[str], int] | None = None,
        heard: Callable[[Appointed, str, AnyFrame], None] = lambda _keeper, _topic, _frame: None,
    ) -> None:
        """*again* gives a keeper its next appointment, above a number; *replicas_of* asks a topic's policy.

        *heard* gets what a keeper that carried knows, with the name of the topic it is about.
        """
        # Gives what is held and finished of a topic; and is called when a keeper says which older copies are
        # gone.
        self.holdings: Callable[[str], tuple[Ranges, dict[str, ChannelFacts]]] = lambda _name: ([], {})
        self.gone: Callable[[Appointed, int], None] = lambda _keeper, _appointment: None
        # Is called when a keeper names others, which a keeper that stood in for this home has appointed.
        self.others_keep: Callable[[tuple[Fellow, ...]], None] = lambda _keepers: None
        # All keepers that may have copies.
        self.fellows: Callable[[], tuple[Fellow, ...]] = lambda: ()
        # Gives the messages of a topic of which nobody needs a copy.
        self.settled: Callable[[str], Ranges] = lambda _name: []
        # This is a keeper that speaks for a home which is gone.
        self.stands_in = False
        self.settings = settings
        self.identity = identity
        self.node_id = node_id
        self.address = address
        self.again = again
        self.heard = heard
        # Replaced, not changed in place: a link that ends during a loop over them must not hide the next one.
        self.links: tuple[Linked, ...] = ()
        # Logs whose next checkpoint is to be written soon, and whole.
        self.wants_checkpoint: dict[LogWriter, None] = {}
        # Names of deleted topics, each with the addresses of keepers that have not heard of it.
        self.untold: dict[str, set[str]] = {}
        # `untold` has changed and is to be made durable.
        self.untold_changed = False
        self.addresses: set[str] = set()
        self._replicas_of = replicas_of or (lambda _name: settings.replicas)
        self._logs: dict[LogWriter, _TappedLog] = {}
        self._waiting: dict[tuple[int, ...], Wait] = {}

    # --- the logs ---

    def add(self, log: LogWriter, name: str) -> None:
        """Add a log of this node, found at the start or made since."""
        self._logs[log] = log.tap = _TappedLog(self, log, name)

    def known(self) -> Iterator[tuple[LogWriter, str]]:
        return ((log, known.name) for log, known in self._logs.items())

    def gone_of(self, log: LogWriter) -> dict[str, LetGo]:
        return self._logs[log].gone

    def deleted(self, log: LogWriter) -> None:
        """The topic of this log was deleted."""
        known = self._logs.pop(log, None)
        if known is None:
            return
        log.tap = None
        if self.keepers:
            self.untold[known.name] = self.keepers
            self.untold_changed = True
        for link in self.links:
            link.deleted(log, known.name)

    @property
    def keepers(self) -> set[str]:
        """Addresses of all keepers that may have copies, including former ones."""
        return self.addresses | {one.address for one in self.fellows()}

    def heard_of_deletion(self, name: str, address: str) -> None:
        """Note that a keeper has heard of the deletion of a topic."""
        left = self.untold.get(name)
        if left is not None:
            left.discard(address)
            if not left & self.keepers:
                del self.untold[name]
            self.untold_changed = True

    def want_checkpoint(self, log: LogWriter) -> None:
        """Let the next checkpoint of this log be written soon, and whole."""
        self.wants_checkpoint[log] = None

    def checkpointed(self, log: LogWriter, job: CheckpointJob) -> None:
        """A checkpoint was written: pass it to the keepers."""
        for link in self.links:
            link.checkpointed(log, job)

    def say_who_keeps(self) -> None:
        """Tell each keeper who the keepers are, because others have been appointed."""
        for link in self.links:
            link.say_who_keeps()

    # --- who waits ---

    def counting(self, log: LogWriter) -> list[Linked]:
        """The keepers whose word counts for a topic."""
        return [link for link in self.links if link.counts(log)]

    def lacks(self, log: LogWriter) -> str:
        """Why a publish to this topic is refused before it is written; empty when it is not."""
        if not self.settings.refuse:
            return ""
        known = self._logs.get(log)
        need = self._replicas_of(known.name) if known is not None else self.settings.replicas
        have = len(self.counting(log)) if known is not None else sum(link.is_up for link in self.links)
        return _too_few(have, need) if have < need else ""

    def copies_of(self, log: LogWriter) -> tuple[int, int]:
        """How many keepers' word counts for a topic, and how many are wanted."""
        known = self._logs.get(log)
        return (0, 0) if known is None else (len(self.counting(log)), self._replicas_of(known.name))

    def under_copied(self) -> int:
        """How many topics have fewer linked keepers than are wanted."""
        return sum(have < wanted for have, wanted in map(self.copies_of, self._logs))

    def wait(self, log: LogWriter) -> Wait | None:
        """What the publisher of the message just appended waits for; None when it waits for no keeper."""
        known = self._logs.get(log)
        wanted = 0 if known is None else self._replicas_of(known.name)
        if not wanted:
            return None
        links = self.counting(log)
        # If fewer than wanted are linked, all of those are waited for.
        expected = min(wanted, len(links))
        behind = [link for link in links if not link.out.has_all]
        need = expected - (len(links) - len(behind))
        if need <= 0:
            return None
        links = behind
        if len(links) == 1:
            key: tuple[int, ...] = (need, wanted, id(links[0]), links[0].out.sent)
        else:
            key = (need, wanted, *(part for link in links for part in (id(link), link.out.sent)))
        found = self._waiting.get(key)
        if found is None or not found.open:
            reason = _too_few(expected - 1, wanted) if self.settings.refuse else ""
            self._waiting = {key: (found := Wait(need, len(links), reason))}
            for link in links:
                link.out.wait(found)
        return found


def _too_few(have: int, need: int) -> str:
    return f"{have} of {need} keepers are linked"
