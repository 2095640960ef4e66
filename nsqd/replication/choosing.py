"""Which nsqd keep the logs of this one, and until when. Pure; times are passed in, in nanoseconds.

A home has one set of keepers for all its topics: the fewer sets of nodes hold the same data, the less often
data is lost. Each home ranks all others by a hash of both, so homes spread over keepers without talking, and
a node that comes or goes changes the keepers of few homes. Another zone is preferred first, then another
host. An appointed keeper stays until it is gone for too long, refuses or leaves.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from xxhash import xxh3_64_intdigest

# How many former keepers are remembered; they are asked for their copies until those have gone.
MOST_FORMER: Final = 64


@dataclass(frozen=True, slots=True)
class Candidate:
    """An nsqd that could keep, as nsqlookupd has it or as it was configured; unknown fields are empty."""

    address: str
    identity: str = ""
    zone: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True)
class Appointed:
    """A keeper and the number of its appointment."""

    number: int
    address: str
    identity: str = ""


def score(home: str, keeper: str) -> int:
    """How much a home prefers that keeper; each pair has its own score."""
    return xxh3_64_intdigest(f"{home}\n{keeper}".encode())


def choose(
    home: Candidate, candidates: Iterable[Candidate], count: int, taken: Iterable[Candidate] = ()
) -> list[Candidate]:
    """The *count* best of the *candidates*, in addition to those *taken*; fewer when there are no more.

    A candidate is preferred in a zone where neither the home nor another of its keepers is, then on such a
    host. One without a zone, or a host, counts as being elsewhere.
    """
    chosen: list[Candidate] = []
    others = [home, *taken]
    known = {one.address for one in others} | {one.identity for one in others if one.identity}
    left = {one.address: one for one in candidates if one.address not in known and one.identity not in known}
    while left and len(chosen) < count:
        zones = {one.zone for one in others if one.zone}
        hosts = {one.host for one in others if one.host}
        best = min(
            left.values(),
            key=lambda one: (
                one.zone in zones,
                one.host in hosts,
                -score(home.identity, one.identity or one.address),
                one.address,
            ),
        )
        del left[best.address]
        chosen.append(best)
        others.append(best)
    return chosen


@dataclass(slots=True)
class Appointments:
    """The appointments of this home; durable before a keeper hears of them, so no number is given twice."""

    last: int = 0
    current: list[Appointed] = field(default_factory=list)
    # Former keepers, whose copies may still exist.
    former: list[Appointed] = field(default_factory=list)

    def appoint(self, one: Candidate) -> Appointed:
        """Give that keeper the next number."""
        self.last += 1
        appointed = Appointed(self.last, one.address, one.identity)
        self.current.append(appointed)
        return appointed

    def again(self, old: Appointed, above: int = 0) -> Appointed:
        """Keep a keeper whose copy was set aside, with the next number, which is higher than *above*."""
        self.dismiss(old)
        self.last = max(self.last, above)
        return self.appoint(Candidate(old.address, old.identity))

    def dismiss(self, old: Appointed) -> None:
        """Let a keeper go; its copies are asked for until they are gone."""
        # By its number, because its identity may have been learned since.
        self.current = [one for one in self.current if one.number != old.number]
        self.former.append(old)
        del self.former[:-MOST_FORMER]

    def met(self, number: int, identity: str) -> None:
        """Note the identity of the keeper of that appointment."""
        self.current = [
            Appointed(one.number, one.address, identity) if one.number == number else one
            for one in self.current
        ]

    def forget_up_to(self, address: str, number: int) -> bool:
        """Forget former keepers of that address up to that appointment; True if there were any."""
        left = [one for one in self.former if one.address != address or one.number > number]
        news = len(left) < len(self.former)
        self.former = left
        return news

    def heard_of(self, keepers: Iterable[tuple[int, str]]) -> bool:
        """Note keepers that somebody who stood in for this home has appointed; True if there are new ones."""
        known = {(one.number, one.address) for one in (*self.current, *self.former)}
        news = [Appointed(number, address) for number, address in keepers if (number, address) not in known]
        self.former += news
        del self.former[:-MOST_FORMER]
        self.last = max(self.last, *(one.number for one in news), 0)
        return bool(news)

    def to_json(self) -> dict[str, Any]:
        """The value that is written to the disk."""
        return {
            "last": self.last,
            "current": [[one.number, one.address, one.identity] for one in self.current],
            "former": [[one.number, one.address, one.identity] for one in self.former],
        }

    @classmethod
    def from_json(cls, value: Any) -> "Appointments":
        """Read such a value. Raises ValueError."""
        try:
            found = cls(
                int(value["last"]),
                [Appointed(int(number), str(address), str(who)) for number, address, who in value["current"]],
                [Appointed(int(number), str(address), str(who)) for number, address, who in value["former"]],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"appointments are damaged: {type(error).__name__}: {error}") from error
        if any(one.number > found.last for one in (*found.current, *found.former)):
            raise ValueError("appointments are damaged: there is a number above the last")
        return found


class KeeperPatience:
    """When a keeper that does not answer is replaced by another, and when one that refused is asked again."""

    __slots__ = ("_away_since_ns", "_refused_ns", "patience_ns")

    def __init__(self, patience_ns: int) -> None:
        self.patience_ns = patience_ns
        self._away_since_ns: dict[str, int] = {}
        self._refused_ns: dict[str, int] = {}

    def linked(self, address: str) -> None:
        """The keeper is there and accepts what comes."""
        self._away_since_ns.pop(address, None)
        self._refused_ns.pop(address, None)

    def away(self, address: str, now_ns: int) -> None:
        """The keeper is away, and perhaps was before."""
        self._away_since_ns.setdefault(address, now_ns)

    def refused(self, address: str, now_ns: int) -> bool:
        """The keeper refuses the logs of this node; True if that is news."""
        news = address not in self._refused_ns
        self._refused_ns[address] = now_ns
        return news

    def is_worn_out(self, address: str, now_ns: int) -> bool:
        """Whether to look for another keeper in its place."""
        if address in self._refused_ns:
            return True
        since_ns = self._away_since_ns.get(address)
        return since_ns is not None and now_ns - since_ns >= self.patience_ns

    def may_ask(self, address: str, now_ns: int) -> bool:
        """Whether it may be appointed: not too soon after it refused, or was away for too long."""
        refused_ns = self._refused_ns.get(address)
        if refused_ns is not None and now_ns - refused_ns >= self.patience_ns:
            del self._refused_ns[address]
            refused_ns = None
        away_ns = self._away_since_ns.get(address)
        if away_ns is not None and now_ns - away_ns >= 2 * self.patience_ns:
            # Another has its place by now. It is a candidate, so somebody has seen it.
            del self._away_since_ns[address]
        return refused_ns is None and not self.is_worn_out(address, now_ns)


def replaced(
    home: Candidate,
    candidates: Sequence[Candidate],
    count: int,
    appointments: Appointments,
    patience: KeeperPatience,
    now_ns: int,
) -> list[Appointed]:
    """Bring *appointments* up to date; returns the new ones.

    A keeper is let go only when another takes its place, or when there is one too many.
    """
    known = {one.address: one for one in candidates}
    kept: list[Appointed] = []
    doubtful: list[Appointed] = []
    for one in appointments.current:
        (doubtful if patience.is_worn_out(one.address, now_ns) else kept).append(one)
    for one in kept[count:]:
        appointments.dismiss(one)
    kept = kept[:count]
    taken = [known.get(one.address, Candidate(one.address, one.identity)) for one in kept]
    free = [
        one
        for one in candidates
        if all(one.address != old.address for old in doubtful) and patience.may_ask(one.address, now_ns)
    ]
    chosen = choose(home, free, count - len(kept), taken)
    # Keepers that nobody can replace stay appointed, because they may come back.
    for one in doubtful[max(0, count - len(kept) - len(chosen)) :]:
        appointments.dismiss(one)
    return [appointments.appoint(one) for one in chosen]
