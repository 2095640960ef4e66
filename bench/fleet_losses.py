"""``python -m bench.fleet_losses``: simulates the loss of an nsqd, a zone or all nsqlookupd by the second.

One topic of the fleet is simulated with its nsqd, some producers and consumers. When each of them notices a
loss follows from the constants of clients and daemons: producers choose by the client's own Roster, consumers
look up again as its RoundPace says, nsqlookupd answers one request after another. A killed node refuses at
once; one that is cut off is silent, and its loss is noticed when its answers do not come.
"""

import argparse
import heapq
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from bench.fleet_model import Constants, Fleet, costs, lookup_us
from nsqclient.config import Config
from nsqclient.discovery import FIRST_RETRY_SECONDS
from nsqclient.roster import Roster
from nsqd.options import NsqdOptions
from nsqd.server.lookup.session import LAST_RETRY_S
from nsqlookupd.options import NsqlookupdOptions

SECOND: Final = 1e9
POLL_S: Final = Config().lookupd_poll_interval
JITTER_S: Final = POLL_S * Config().lookupd_poll_jitter
# A consumer closes a connection that was silent for this long.
SILENCE_S: Final = Config().read_timeout
# A producer leaves an nsqd that owes it an answer for this long.
PUBLISH_TIMEOUT_S: Final = 10.0
CARRY_AFTER_S: Final = NsqdOptions().carry_after / SECOND
PATIENCE_S: Final = NsqdOptions().keeper_patience / SECOND
FILL_MB_PER_S: Final = 50.0
INACTIVE_S: Final = NsqlookupdOptions().inactive_producer_timeout / SECOND

LOST_AT_S: Final = 100.0
NEWCOMER_S: Final = 60.0
RESTART_S: Final = 30.0
STEP_S: Final = 0.5
# The messages of this last time wait on an nsqd when it is lost.
BEHIND_S: Final = 1.0
# Simulating more of them would not change the result.
MOST_PRODUCERS: Final = 100
MOST_CONSUMERS: Final = 20
# Number of nsqd that a producer knows.
KNOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Loss:
    what: str
    """nsqd, zone or nsqlookupd (all of them)."""
    lasts_s: float = 400.0
    cut_off: bool = False
    """Nothing is refused, nothing is closed: packets get lost."""

    @property
    def title(self) -> str:
        who = {"nsqd": "one nsqd", "zone": "a zone", "nsqlookupd": "all nsqlookupd"}[self.what]
        return f"{who}, {'cut off' if self.cut_off else 'killed'}"


@dataclass(slots=True)
class Played:
    """The results of one loss; seconds count from the loss or, if it says so, from its end."""

    moved: float = 0.0
    """Messages whose producer had to take another nsqd."""
    held_s: float = 0.0
    """The longest that a publish took."""
    unread_s: float = 0.0
    """The longest that messages lay on an nsqd that is there, and no consumer read them."""
    waiting: float = 0.0
    """The most messages of the topic that waited anywhere."""
    late_s: float = 0.0
    """How late the oldest of those was that lay on what was lost."""
    share: float = 1.0
    """How many times as much as any one before the busiest of the others took."""
    registered_s: float = 0.0
    """After the end: until nsqlookupd has all registrations."""
    found_s: float = 0.0
    """After the end: until every consumer reads every nsqd."""
    newcomer_s: float = 0.0
    """A consumer that starts a minute after the loss: until it reads from somewhere."""
    copied_mb: float = 0.0
    """Copied to other keepers, since the first ones are gone for longer than their patience."""
    copied_s: float = 0.0


@dataclass(slots=True, eq=False)
class Node:
    number: int
    zone: int
    is_hit: bool = False
    """It is one of those that get lost."""
    lost: bool = False
    registered: bool = True
    waiting: float = 0.0
    since_s: float = 0.0
    """When the oldest that waits here came."""
    took: float = 0.0
    """In this step."""
    carried: bool = False


@dataclass(slots=True)
class Reader:
    reads: set[int] = field(default_factory=set)
    retry_s: float | None = None
    is_new: bool = False
    token: int = 0
    """A later plan for the next round makes an earlier one void."""


class Play:
    """One loss in one fleet. Time is in seconds; events happen at their times, messages flow in steps."""

    def __init__(self, fleet: Fleet, constants: Constants, loss: Loss, *, kept_mb: float, seed: int) -> None:
        self.fleet, self.loss, self.seen = fleet, loss, Played()
        self._c, self._kept_mb = constants, kept_mb
        self._dice = random.Random(seed)
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.nodes = [Node(number, number % fleet.zones) for number in range(fleet.nodes_of_topic)]
        self._hit = self._hit_by(loss)
        self._rate = fleet.rate / fleet.topics
        many = min(MOST_PRODUCERS, 2 * len(self.nodes))
        self._rosters = [
            Roster(str((number + more) % len(self.nodes)) for more in range(KNOWN)) for number in range(many)
        ]
        self._waits_until = [0.0] * many
        self._waits_for = [""] * many
        self._owed = [0.0] * many
        self._held_from = [0.0] * many
        # The most that an nsqd gets in a step before the loss.
        self._usual = 0.0
        self.readers = [Reader() for _ in range(min(MOST_CONSUMERS, max(2, fleet.consumers)))]
        self._lookupd = True
        self._busy_until = 0.0  # nsqlookupd answers one request after another
        self._back_at = LOST_AT_S + loss.lasts_s
        self._ends = self._back_at + 2 * POLL_S + JITTER_S + 10

    def run(self) -> Played:
        for reader in self.readers:
            reader.reads = {node.number for node in self.nodes}
            self._plan_round(reader, self._dice.uniform(0, POLL_S + JITTER_S))
        self._at(LOST_AT_S, self._lose)
        self._at(self._back_at, self._come_back)
        self._at(LOST_AT_S + NEWCOMER_S, self._newcomer)
        if self.loss.what == "nsqlookupd":
            # An nsqd is also restarted meanwhile, because otherwise the loss would have no effect.
            self._at(LOST_AT_S + RESTART_S, lambda: self._restart(self.nodes[0]))
        step = 0
        while self.now < self._ends:
            until = step * STEP_S
            while self._events and self._events[0][0] <= until:
                self.now, _, event = heapq.heappop(self._events)
                event()
            self.now = until
            self._flow()
            step += 1
        self._copies()
        return self.seen

    # -- the loss and its end ----------------------------------------------------------

    def _hit_by(self, loss: Loss) -> list[Node]:
        if loss.what == "nsqd":
            return [self.nodes[0]]
        return [node for node in self.nodes if node.zone == 0] if loss.what == "zone" else []

    def _lose(self) -> None:
        if self.loss.what == "nsqlookupd":
            self._lookupd = False
        for node in self._hit:
            node.lost = node.is_hit = True
            node.waiting += self._rate / len(self.nodes) * BEHIND_S
            node.since_s = self.now - BEHIND_S
            gone = SILENCE_S if self.loss.cut_off else 0.0
            for reader in self.readers:
                self._at(self.now + gone, lambda r=reader, n=node: self._drop(r, n))  # type: ignore[misc]
            unlisted = INACTIVE_S if self.loss.cut_off else 0.0
            self._at(self.now + unlisted, lambda n=node: self._unlist(n))  # type: ignore[misc]
            if self.fleet.copies:
                self._at(self.now + CARRY_AFTER_S, lambda n=node: self._carry(n))  # type: ignore[misc]

    def _unlist(self, node: Node) -> None:
        if node.lost:
            node.registered = False

    def _carry(self, node: Node) -> None:
        """Let the keeper of a lost node, if it is up, give out what the node had not delivered."""
        if not node.lost:
            return
        keeper = self._keeper(node)
        if not keeper.lost:
            node.carried = True
            keeper.since_s = min(keeper.since_s, node.since_s) if keeper.waiting else node.since_s
            keeper.waiting += node.waiting
            self.seen.late_s = max(self.seen.late_s, self.now - node.since_s if node.waiting else 0.0)
            node.waiting = 0.0

    def _come_back(self) -> None:
        if self.loss.what == "nsqlookupd":
            self._lookupd = True
            self._busy_until = self.now
            comers = [node for node in self.nodes if not node.lost]
            every = self.fleet.nsqds
        else:
            comers, every = self._hit, len(self._hit)
        for node in comers:
            node.lost = node.carried = False
        # Each nsqd tries again after a random time, and nsqlookupd registers one after another.
        work_s = costs(self.fleet, self._c).registration_s / self.fleet.nsqds
        order = sorted((self._dice.uniform(0.5, 1.0) * LAST_RETRY_S, number) for number in range(every))
        places = set(self._dice.sample(range(every), len(comers)))
        free, waiting = self.now, list(comers)
        for place, (after, _) in enumerate(order):
            free = max(free, self.now + after) + work_s
            if place in places:
                node = waiting.pop()
                self._at(free, lambda n=node: self._register(n))  # type: ignore[misc]
        self._busy_until = max(self._busy_until, free)
        self.seen.registered_s = free - self.now

    def _register(self, node: Node) -> None:
        node.registered = True

    def _restart(self, node: Node) -> None:
        """Restart the node; without nsqlookupd no client learns that it is back."""
        node.registered = False
        for reader in self.readers:
            self._drop(reader, node)

    def _newcomer(self) -> None:
        reader = Reader(is_new=True)
        self.readers.append(reader)
        self._round(reader, reader.token)

    # -- consumers ---------------------------------------------------------------------

    def _drop(self, reader: Reader, node: Node) -> None:
        if node.number in reader.reads:
            reader.reads.discard(node.number)
            self._hurry(reader)

    def _hurry(self, reader: Reader) -> None:
        reader.retry_s = FIRST_RETRY_SECONDS
        self._plan_round(reader, self._pause(reader))

    def _pause(self, reader: Reader) -> float:
        wait = reader.retry_s
        if wait is None:
            return POLL_S
        reader.retry_s = wait * 2 if wait * 2 < POLL_S else None
        return wait

    def _plan_round(self, reader: Reader, after: float) -> None:
        reader.token += 1
        token = reader.token
        self._at(self.now + after, lambda: self._round(reader, token))

    def _round(self, reader: Reader, token: int) -> None:
        if token != reader.token:
            return
        answered = self.now
        listed: list[Node] = []
        if self._lookupd:
            listed = [node for node in self.nodes if node.registered]
            # An answer waits until nsqlookupd has finished its earlier work.
            self._busy_until = max(self._busy_until, self.now) + lookup_us(self._c, len(listed)) / 1e6
            answered = self._busy_until
        refused = not listed and reader.retry_s is None
        for node in listed:
            if node.number not in reader.reads:
                if node.lost:
                    refused = True
                else:
                    reader.reads.add(node.number)
        if reader.is_new and reader.reads:
            self.seen.newcomer_s = answered - LOST_AT_S - NEWCOMER_S
            reader.is_new = False
        if refused and reader.retry_s is None:
            reader.retry_s = FIRST_RETRY_SECONDS
        self._plan_round(reader, answered - self.now + self._pause(reader))

    # -- messages ----------------------------------------------------------------------

    def _flow(self) -> None:
        for node in self.nodes:
            node.took = 0.0
        each = self._rate / len(self._rosters) * STEP_S
        for number, roster in enumerate(self._rosters):
            self._owed[number] += each
            if self._waits_until[number] <= self.now:
                self._publish(number, roster)
        read = set[int]().union(*(reader.reads for reader in self.readers))
        waiting = 0.0
        for node in self.nodes:
            if node.took and not node.waiting:
                node.since_s = self.now
            node.waiting += node.took
            if node.lost:
                waiting += node.waiting
                continue
            if node.number in read and node.waiting:
                if node.since_s < self._back_at < self.now:
                    self.seen.late_s = max(self.seen.late_s, self.now - node.since_s)
                # Everything is read except the messages of this step, which are on their way.
                node.waiting, node.since_s = 0.0, self.now
            elif node.waiting:
                there_s = self._back_at if node.is_hit and self.now >= self._back_at else 0.0
                self.seen.unread_s = max(self.seen.unread_s, self.now - max(node.since_s, there_s))
            waiting += node.waiting
            if self.now < LOST_AT_S:
                self._usual = max(self._usual, node.took)
            else:
                self.seen.share = max(self.seen.share, node.took / self._usual)
        self.seen.waiting = max(self.seen.waiting, waiting)
        if self.now > self._back_at and any(len(one.reads) < len(self.nodes) for one in self.readers):
            self.seen.found_s = self.now - self._back_at

    def _publish(self, number: int, roster: Roster) -> None:
        if self._waits_for[number]:
            # The answer has not come, so only now does the producer know that this nsqd failed.
            roster.failed(self._waits_for[number], self.now)
            self._waits_for[number] = ""
        for _ in range(KNOWN):
            picked = roster.pick(self.now)
            assert picked is not None
            node = self.nodes[int(picked)]
            if not node.lost:
                roster.succeeded(picked)
                node.took += self._owed[number]
                self.seen.held_s = max(self.seen.held_s, self.now - (self._held_from[number] or self.now))
                self._owed[number] = self._held_from[number] = 0.0
                return
            if not self._held_from[number]:
                self._held_from[number] = self.now
                self.seen.moved += self._owed[number]
            if self.loss.cut_off:
                self._waits_for[number] = picked
                self._waits_until[number] = self.now + PUBLISH_TIMEOUT_S
                return
            roster.failed(picked, self.now)

    # -- copies ------------------------------------------------------------------------

    def _copies(self) -> None:
        """Count what homes copy to another keeper after theirs was away for longer than their patience."""
        if not self.fleet.copies or self.loss.lasts_s <= PATIENCE_S:
            return
        homes = [node for node in self.nodes if not node.is_hit and self._keeper(node).is_hit]
        self.seen.copied_mb = len(homes) * self._kept_mb
        self.seen.copied_s = self._kept_mb / FILL_MB_PER_S if homes else 0.0

    def _keeper(self, node: Node) -> Node:
        """Return the next node in another zone, otherwise the next node."""
        after = self.nodes[node.number + 1 :] + self.nodes[: node.number] or [node]
        return next((one for one in after if one.zone != node.zone), after[0])

    def _at(self, time: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, event))


def play(
    fleet: Fleet, loss: Loss, constants: Constants | None = None, *, kept_mb: float = 1000.0, seed: int = 1
) -> Played:
    """Simulate one loss and return its results."""
    return Play(fleet, constants or Constants(), loss, kept_mb=kept_mb, seed=seed).run()


LOSSES: Final = (
    Loss("nsqd"),
    Loss("nsqd", cut_off=True),
    Loss("zone"),
    Loss("zone", cut_off=True),
    Loss("nsqlookupd"),
)
ROWS: Final = {
    "messages whose producer took another nsqd": "moved",
    "the longest publish (s)": "held_s",
    "the busiest of the others takes so many times as much": "share",
    "most messages that waited": "waiting",
    "the oldest of what lay there came so late (s)": "late_s",
    "messages lay on an nsqd that is there, unread (s)": "unread_s",
    "a new consumer waits (s)": "newcomer_s",
    "it is over: all registered after (s)": "registered_s",
    "it is over: every consumer reads every nsqd after (s)": "found_s",
    "copied to other keepers (MB)": "copied_mb",
    "and that takes (s)": "copied_s",
}


def table(fleets: Sequence[Fleet], loss: Loss) -> Iterator[str]:
    """Yield the table of one loss in fleets of several sizes, without lines that are zero everywhere."""
    found = [play(fleet, loss) for fleet in fleets]
    yield f"| {loss.title} | " + " | ".join(f"{fleet.nsqds:,}" for fleet in fleets) + " |"
    yield "|---|" + "--:|" * len(fleets)
    for title, name in ROWS.items():
        values = [getattr(one, name) for one in found]
        if any(values) and not (name == "share" and max(values) < 1.01):
            yield f"| {title} | " + " | ".join(f"{value:,.1f}".removesuffix(".0") for value in values) + " |"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet_losses", description=__doc__)
    plain = Fleet(1)
    parser.add_argument("--nsqds", default="10,100,1000,10000")
    parser.add_argument(
        "--spread", type=int, default=10, help="nsqd of the topic, 0: all (default %(default)s)"
    )
    parser.add_argument("--consumers", type=int, default=plain.consumers, help="default %(default)s")
    parser.add_argument("--rate", type=float, default=plain.rate, help="of all topics (default %(default)s)")
    parser.add_argument("--topics", type=int, default=plain.topics, help="default %(default)s")
    parser.add_argument("--zones", type=int, default=plain.zones, help="default %(default)s")
    parser.add_argument("--copies", type=int, default=0, help="default %(default)s")
    parser.add_argument(
        "--lasts", type=float, default=Loss("nsqd").lasts_s, help="seconds (default %(default)s)"
    )
    args = vars(parser.parse_args(argv))
    sizes, lasts_s = [int(size) for size in args.pop("nsqds").split(",")], args.pop("lasts")
    fleets = [replace(plain, nsqds=size, **args) for size in sizes]
    for loss in LOSSES:
        for line in table(fleets, replace(loss, lasts_s=lasts_s)):
            print(line)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
