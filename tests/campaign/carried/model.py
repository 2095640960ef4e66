"""A model of nsqd's carried logs that shows which rule keeps which message. See docs/replication.md.

It has one home's log and its copies. There is no time: every possible order of events happens with some seed.
A log is a row of entries, each at a position: messages, and notes (a channel was created, or messages were
finished other than by a consumer). A copy has the home's entries that have arrived, and the home's last
checkpoint; a carrier keeps what it learns beside them, in its own checkpoints.

    python -m tests.campaign.carried model 20000                  the rules as they are
    python -m tests.campaign.carried model 20000 --without aside  with one left out

The rules:

    had         a node tells facts only about messages that it once had, not about those its engine skipped
    here        the same holds for a carrier's own checkpoints, because gaps of its copy may be filled later
    generation  facts of another generation of a channel are ignored; the higher holder's channel is valid
    adopt       a channel that only one of two nodes knows is created by the other
    note        a node writes down what it learns before it serves anything on that basis
    held        the lower holder leaves to the higher one the messages that it has now, not all below its end
    linked      a keeper's acknowledgements count while the stream since they met is complete
    checkpoint  they count only if the copy has the home's checkpoint of then: older notes may be missing
    again       what a process knows of a copy is void when the copy grows; it is then recovered again
    aside       a copy with messages that its home never had or lost is not overwritten but stays as older
    older       an older copy is removed when the home and its present keeper have all that its channels owe
    whole       a home is handed over when its keeper has all of it, and the last checkpoint
    durable     and has it on its disk
    spare       and other copies stay, because one may have what the home lost
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

RULES: Final = (
    "had",
    "here",
    "generation",
    "adopt",
    "note",
    "held",
    "linked",
    "checkpoint",
    "again",
    "aside",
    "older",
    "whole",
    "durable",
    "spare",
)
HOME: Final = 1 << 20
MOST_APPOINTED: Final = 4


@dataclass
class Made:
    """A channel as one holder knows it: its generation, and the finished messages."""

    generation: int
    finished: set[int]

    def copy(self) -> "Made":
        return Made(self.generation, set(self.finished))


def copied(channels: dict[str, Made]) -> dict[str, Made]:
    return {name: made.copy() for name, made in channels.items()}


@dataclass
class Saved:
    """A checkpoint: what was finished at a position of the log, and which messages the holder had."""

    position: int = 0
    had: set[int] = field(default_factory=set)
    channels: dict[str, Made] = field(default_factory=dict)
    # Of the messages it had: those finished on all channels whose bytes were removed.
    gone: set[int] = field(default_factory=set)

    def copy(self) -> "Saved":
        return Saved(self.position, set(self.had), copied(self.channels), set(self.gone))


@dataclass
class Entry:
    """A message, or a note that a channel was created or that messages of it were finished."""

    seq: int = 0
    channel: str = ""
    made: Made | None = None


class Holder:
    """A node's files of one log, and its process's knowledge of them."""

    def __init__(self, node: int, rank: int) -> None:
        self.node, self.rank = node, rank
        self.up = True
        # --- on its disk ---
        self.entries: dict[int, Entry] = {}
        self.unsynced: set[int] = set()
        # The home's checkpoint, and the carrier's own beside it.
        self.saved, self.here = Saved(), Saved()
        # --- in its process ---
        self.channels: dict[str, Made] = {}
        self.had: set[int] = set()
        # The files have changed since they were recovered.
        self.grown = False
        # Positions of a log that was handed over that a power cut may still take, and that no other node has.
        self.fragile: set[int] = set()

    @property
    def is_home(self) -> bool:
        return self.rank == HOME

    @property
    def held(self) -> set[int]:
        return {entry.seq for entry in self.entries.values() if entry.seq}

    @property
    def end(self) -> int:
        return max(self.entries, default=0) + 1

    def write(self, position: int, entry: Entry) -> None:
        self.entries[position] = entry
        self.unsynced.add(position)
        if self.is_home and entry.seq:
            self.had.add(entry.seq)
        self.grown = not self.is_home

    def remove(self, position: int) -> None:
        self.entries.pop(position, None)
        self.unsynced.discard(position)

    def lose_power(self, rng: random.Random) -> None:
        """Lose the unsynced entries from a random place on."""
        tail = sorted(self.unsynced)
        for position in tail[rng.randint(0, len(tail)) :]:
            self.remove(position)
        self.unsynced = set()

    def recover(self, without: frozenset[str], numbers: int) -> None:
        """Recover the files as a start does; messages have numbers up to *numbers*."""
        held, self.grown = self.held, False
        self.had = held | self.saved.gone | self.here.gone
        self.channels = {}
        for name, made in self.saved.channels.items():
            # Only facts about messages that the home had: it also counts numbers it never got as finished.
            self.channels[name] = Made(made.generation, made.finished & self.saved.had)
        for name, made in self.here.channels.items():
            known = made.finished if "here" in without else made.finished & self.here.had
            mine = self.channels.get(name)
            if mine is not None and mine.generation == made.generation:
                mine.finished |= known
            elif mine is None or self.here.position >= self.saved.position:
                self.channels[name] = Made(made.generation, set(known))
        for position in sorted(self.entries):
            entry = self.entries[position]
            if position < self.saved.position or entry.made is None:
                continue
            mine = self.channels.get(entry.channel)
            if mine is None or (mine.generation != entry.made.generation and not self.here.channels):
                self.channels[entry.channel] = entry.made.copy()
            elif mine.generation == entry.made.generation:
                mine.finished |= entry.made.finished
        # Messages that are not here are owed to nobody.
        for made in self.channels.values():
            made.finished |= set(range(1, numbers + 1)) - held

    def owed(self, name: str) -> set[int]:
        return self.held - self.channels[name].finished

    def save(self) -> None:
        """Write a checkpoint: the home's among its files, a carrier's beside them."""
        saved = Saved(self.end, set(self.had), copied(self.channels))
        saved.gone = {
            seq for seq in self.had - self.held if all(seq in one.finished for one in self.channels.values())
        }
        if self.is_home:
            self.saved = saved
        else:
            saved.position = self.saved.position
            self.here = saved


class History:
    """One seed: a home, its keepers, and what happens to them."""

    def __init__(self, seed: int, without: frozenset[str] = frozenset(), *, leaves: bool = False) -> None:
        """With *leaves* the home is handed over at some step."""
        self.rng, self.without = random.Random(seed), without
        self.leaves = random.Random(f"leaves {seed}").randint(10, 100) if leaves else -1
        self.nodes = self.rng.randint(3, 5)
        self.position = self.number = self.generation = self.appointed = 0
        self.home: Holder | None = Holder(0, HOME)
        self.first = self.home
        self.keepers: list[Holder] = []
        self.current: Holder | None = None
        self.linked = False
        self.cut: set[int] = set()
        # Message answered with OK -> the channels that existed then.
        self.promised: dict[int, set[str]] = {}
        self.done: dict[str, set[int]] = {}
        self.again = self.asides = self.carried = self.handed = 0
        self.trace: list[str] = []

    # --- holders ---

    def holders(self) -> list[Holder]:
        return [*([self.home] if self.home else []), *self.keepers]

    def reach(self, a: Holder | None, b: Holder | None) -> bool:
        if a is None or b is None or not (a.up and b.up):
            return False
        return a.node == b.node or not ({a.node, b.node} & self.cut)

    def here(self) -> list[Holder]:
        return [one for one in self.holders() if one.up]

    def streams(self) -> bool:
        return self.linked and self.reach(self.home, self.current)

    # --- the home's log ---

    def append(self, entry: Entry) -> None:
        """Append at the home and, in the same order, at its keeper."""
        assert self.home is not None
        self.position += 1
        self.home.write(self.position, entry)
        if self.current is not None and self.streams():
            self.current.write(self.position, entry)

    def checkpoint(self) -> None:
        up = self.here()
        if up:
            one = self.rng.choice(up)
            if one is self.home:
                self.save_home()
            elif one is not self.current or not self.reach(self.home, one):
                self.know(one).save()

    def save_home(self) -> None:
        assert self.home is not None
        self.home.save()
        self.send_checkpoint()

    def send_checkpoint(self) -> None:
        if self.home is not None and self.current is not None and self.streams():
            self.current.saved, self.current.grown = self.home.saved.copy(), True

    # --- facts ---

    def know(self, one: Holder) -> Holder:
        """Recover the holder's files again if they have grown, and return the holder."""
        if one.grown:
            if "again" in self.without and one.channels:
                one.had |= one.held
            else:
                one.recover(self.without, self.number)
        return one

    def facts(self, one: Holder, name: str) -> set[int]:
        finished = one.channels[name].finished
        return set(finished) if "had" in self.without else finished & one.had

    def meet(self, a: Holder, b: Holder) -> None:
        high, low = (self.know(a), self.know(b)) if a.rank > b.rank else (self.know(b), self.know(a))
        for mine, other in ((low, high), (high, low)):
            for name in list(other.channels):
                self.tell(other, name, mine, higher=other is high)
        for one in (a, b):
            if not one.is_home and "note" not in self.without:
                one.save()

    def tell(self, other: Holder, name: str, mine: Holder, *, higher: bool) -> None:
        """Let *mine* learn what *other* knows of a channel."""
        facts, generation = self.facts(other, name), other.channels[name].generation
        known = mine.channels.get(name)
        if known is None:
            if "adopt" in self.without:
                return
            mine.channels[name] = Made(generation, set(facts))
        elif known.generation == generation or "generation" in self.without:
            if facts <= known.finished:
                return
            known.finished |= facts
        elif higher:
            mine.channels[name] = Made(generation, set(facts))
        else:
            return
        if mine is self.home and "note" not in self.without:
            self.append(Entry(channel=name, made=Made(generation, set(facts))))

    def serves(self, one: Holder) -> set[int]:
        may = one.held if one.up else set()
        for other in self.holders():
            if other.rank > one.rank and self.reach(one, other):
                may -= set(range(1, self.number + 1)) if "held" in self.without else other.held
        return may

    # --- events ---

    def publish(self) -> None:
        if self.home is None or not self.home.up:
            return
        self.number += 1
        self.append(Entry(seq=self.number))
        keeper = self.current
        if keeper is not None and self.reach(self.home, keeper) and (self.linked or "linked" in self.without):
            if not self.linked:
                keeper.write(self.position, Entry(seq=self.number))
            self.promised[self.number] = set(self.home.channels)

    def create(self) -> None:
        up = self.here()
        if not up:
            return
        one, name = self.rng.choice(up), self.rng.choice("ab")
        if any(self.reach(one, other) and other.rank > one.rank for other in up):
            return
        if name in self.know(one).channels:
            return
        self.generation += 1
        # The first channel takes the waiting messages; a later one begins with new messages.
        made = Made(self.generation, set(one.held) if one.channels else set())
        one.channels[name] = made
        if one is self.home:
            self.append(Entry(channel=name, made=made.copy()))
        else:
            one.save()

    def finish(self) -> None:
        up = self.here()
        if not up:
            return
        one = self.rng.choice(up)
        may = self.serves(one)
        for name in self.know(one).channels:
            for seq in sorted(one.owed(name) & may)[: self.rng.randint(1, 4)]:
                self.take(one, name, seq)

    def take(self, one: Holder, name: str, seq: int) -> None:
        one.channels[name].finished.add(seq)
        done = self.done.setdefault(name, set())
        self.again += seq in done
        self.carried += not one.is_home
        done.add(seq)

    def trim(self) -> None:
        """Let the home remove messages that all channels have finished, as dropping and compaction do."""
        home = self.home
        if home is None or not home.up or not home.channels:
            return
        known = home.saved.channels
        if known.keys() != home.channels.keys():
            return
        if any(home.channels[name].generation != made.generation for name, made in known.items()):
            return
        done = set.intersection(*(made.finished for made in known.values())) & home.held
        for position in [p for p, entry in home.entries.items() if entry.seq in done and entry.seq]:
            if self.rng.random() < 0.5:
                home.saved.gone.add(home.entries[position].seq)
                home.remove(position)
                if self.current is not None and self.streams():
                    self.current.remove(position)
        self.send_checkpoint()

    def sync(self) -> None:
        up = self.here()
        if up:
            self.rng.choice(up).unsynced.clear()

    def settled(self, seq: int) -> bool:
        names = self.promised[seq]
        if not names:
            return any(seq in done for done in self.done.values())
        return all(seq in self.done.get(name, ()) for name in names)

    def crash(self) -> None:
        up = self.here()
        if not up:
            return
        node = self.rng.choice(up).node
        power = self.rng.random() < 0.5
        others: set[int] = set().union(*(one.held for one in self.holders() if one.node != node), ())
        for one in [one for one in up if one.node == node]:
            # Unsynced messages are on two nodes; losing both copies would be a second fault.
            kept = {p for p, entry in one.entries.items() if entry.seq and entry.seq not in others}
            one.unsynced -= {p for p in kept - one.fragile if self.is_open(one.entries[p].seq)}
            if power and one.unsynced:
                # A file is cut at one place, so entries before a synced entry stay.
                last = max((p for p in one.entries if p not in one.unsynced), default=0)
                one.unsynced = {p for p in one.unsynced if p > last}
            if power:
                one.lose_power(self.rng)
            one.up = False
            self.linked = self.linked and one is not self.home and one is not self.current

    def is_open(self, seq: int) -> bool:
        return seq in self.promised and not self.settled(seq)

    def start(self) -> None:
        down = {one.node for one in self.holders() if not one.up}
        if down:
            self.start_node(self.rng.choice(sorted(down)))

    def start_node(self, node: int) -> None:
        for one in self.holders():
            if one.node == node and not one.up:
                one.recover(self.without, self.number)
                one.up = True

    def destroy(self) -> None:
        """Lose a disk permanently, unless it has the last copy of a message: that would be a second fault."""
        node = self.rng.choice(sorted({one.node for one in self.holders()}))
        others: set[int] = set().union(*(one.held for one in self.holders() if one.node != node), ())
        if not others or not all(seq in others for seq in self.promised if not self.settled(seq)):
            return
        if self.home is not None and self.home.node == node:
            self.home = None
        self.keepers = [one for one in self.keepers if one.node != node]
        if self.current is not None and self.current.node == node:
            self.current = None
        self.linked = False

    def rot(self) -> None:
        """Make messages unreadable, and let their holder notice."""
        up = [one for one in self.here() if one is not self.home or self.current is not None]
        if not up:
            return
        one = self.rng.choice(up)
        others: set[int] = set().union(
            *(other.held for other in self.holders() if other.node != one.node), ()
        )
        for position, entry in list(one.entries.items()):
            if entry.seq and (entry.seq in others or not self.is_open(entry.seq)) and self.rng.random() < 0.2:
                self.know(one).remove(position)
                one.had.discard(entry.seq)
                for made in one.channels.values():
                    made.finished.add(entry.seq)

    def partition(self) -> None:
        self.cut = {self.rng.randrange(self.nodes)} if self.rng.random() < 0.5 else set()
        self.linked = self.streams()

    def encounter(self) -> None:
        holders = self.here()
        if len(holders) < 2:
            return
        a, b = self.rng.sample(holders, 2)
        if not self.reach(a, b):
            return
        if {a, b} == {self.home, self.current}:
            self.link()
        else:
            self.meet(a, b)

    def link(self) -> None:
        """Connect the home to its present keeper."""
        home, keeper = self.home, self.current
        assert home is not None
        assert keeper is not None
        if self.linked:
            return
        more = keeper.held - home.had
        if more and "aside" not in self.without:
            self.meet(home, keeper)
            if self.appointed >= MOST_APPOINTED:
                return
            self.asides += 1
            keeper = self.begin_copy(keeper.node)
        elif more:
            for position in [p for p, entry in keeper.entries.items() if entry.seq in more]:
                keeper.remove(position)
        # The home learns what was finished. The keeper learns what the home knows only from its files.
        for name in list(self.know(keeper).channels):
            self.tell(keeper, name, home, higher=False)
        # Messages that the home removed meanwhile are removed here too.
        for position in [p for p, e in keeper.entries.items() if e.seq and e.seq in home.saved.gone]:
            keeper.remove(position)
        if "checkpoint" not in self.without:
            home.save()
            keeper.saved, keeper.grown = home.saved.copy(), True
        self.linked = True

    def fill(self) -> None:
        """Send some of the entries that the copy lacks, the oldest first."""
        home, keeper = self.home, self.current
        if home is None or keeper is None or not self.streams():
            return
        missing = sorted(home.entries.keys() - keeper.entries.keys())
        for position in missing[: self.rng.randint(0, len(missing))]:
            keeper.write(position, home.entries[position])

    def begin_copy(self, node: int) -> Holder:
        self.appointed += 1
        keeper = Holder(node, self.appointed)
        self.keepers.append(keeper)
        self.current, self.linked = keeper, False
        return keeper

    def appoint(self) -> None:
        if self.home is None or not self.home.up or self.appointed >= MOST_APPOINTED:
            return
        taken = {one.node for one in self.holders()}
        free = [node for node in range(1, self.nodes) if node not in taken]
        if free:
            node = self.rng.choice(free)
            if not {node, self.home.node} & self.cut:
                self.begin_copy(node)
                self.link()

    def drop(self) -> None:
        """Remove an older copy if the rules allow it."""
        current, home = self.current, self.home
        old = [one for one in self.keepers if one is not current and one.up]
        if not old or current is None or home is None:
            return
        one = self.rng.choice(old)
        if not self.linked or not self.reach(one, current) or not self.reach(one, home):
            return
        self.meet(one, home)
        self.meet(one, current)
        if "older" not in self.without:
            owed: set[int] = (
                set().union(*(one.owed(name) for name in one.channels)) if one.channels else one.held
            )
            if not (owed <= home.held and owed <= current.held):
                return
        self.keepers.remove(one)

    def hand_over(self) -> None:
        """Let the home leave permanently: its keeper has all of it, and its disk is removed."""
        home, keeper = self.home, self.current
        if home is None or keeper is None or not self.streams():
            return
        if "whole" not in self.without:
            for position in sorted(home.entries.keys() - keeper.entries.keys()):
                keeper.write(position, home.entries[position])
            self.save_home()
        if "durable" in self.without:
            keeper.fragile = set(keeper.unsynced)
        else:
            keeper.unsynced.clear()
        if "spare" in self.without:
            self.keepers = [keeper]
        self.home, self.linked = None, False
        self.handed += 1

    EVENTS: Final = {
        "publish": 8,
        "finish": 8,
        "checkpoint": 4,
        "sync": 2,
        "crash": 2,
        "start": 4,
        "partition": 1,
        "encounter": 4,
        "fill": 2,
        "appoint": 1,
        "create": 2,
        "destroy": 1,
        "drop": 1,
        "trim": 2,
        "rot": 1,
    }

    def run(self, steps: int = 120) -> "History":
        events = list(self.EVENTS)
        weights = list(self.EVENTS.values())
        self.appoint()
        for step, event in enumerate(self.rng.choices(events, weights, k=steps)):
            if 0 <= self.leaves <= step and not self.handed:
                self.hand_over()
            self.trace.append(event)
            getattr(self, event)()
        return self

    def lost(self) -> list[tuple[int, str]]:
        """Start and connect all holders, consume everything, and return promised messages that never came."""
        self.cut = set()
        for node in {one.node for one in self.holders()}:
            self.start_node(node)
        if self.home is not None and self.current is not None:
            self.link()
        for _ in range(4):
            for a in self.holders():
                for b in self.holders():
                    if a is not b:
                        self.meet(a, b)
        for one in self.holders():
            may = self.serves(one)
            for name in self.know(one).channels:
                for seq in sorted(one.owed(name) & may):
                    self.take(one, name, seq)
        return list(self._missing())

    def _missing(self) -> Iterator[tuple[int, str]]:
        somewhere = any(one.channels for one in self.holders())
        for seq, names in self.promised.items():
            if not names and somewhere and not self.settled(seq):
                yield seq, ""
            for name in sorted(names):
                if seq not in self.done.get(name, ()):
                    yield seq, name


def losses(
    seeds: range, without: frozenset[str] = frozenset(), *, leaves: bool = False
) -> Iterator[tuple[int, History, list[tuple[int, str]]]]:
    """Yield the seeds that lose something."""
    for seed in seeds:
        history = History(seed, without, leaves=leaves).run()
        lost = history.lost()
        if lost:
            yield seed, history, lost
