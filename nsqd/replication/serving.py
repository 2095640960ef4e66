"""When a keeper carries a copy, when it stops, and what a home that was away leaves to its carriers. Pure.

A copy is *kept* while its home is there, or may be back in a moment. Then it is *carried*: its messages are
given to consumers. When the home is back it is *returning*: nothing more is given out, and messages in flight
are waited for. An older copy is *stale*: it gives out what no copy above it has, until all of it may go.

Times are nanoseconds of a clock that only goes forward, and are passed in.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final


class CopyPhase(Enum):
    """What a keeper does with a copy."""

    # It is files and nothing else.
    KEPT = "kept"
    # Recovered, and given to consumers.
    CARRIED = "carried"
    # Nothing more is given out; some of it is in flight.
    RETURNING = "returning"
    # The folder is gone.
    GONE = "gone"


# Which phase may follow which. A copy that its home writes to is never recovered: its files would grow under
# a process that knows them as they were.
ALLOWED: Final[dict[CopyPhase, frozenset[CopyPhase]]] = {
    CopyPhase.KEPT: frozenset((CopyPhase.CARRIED, CopyPhase.GONE)),
    CopyPhase.CARRIED: frozenset((CopyPhase.RETURNING,)),
    CopyPhase.RETURNING: frozenset((CopyPhase.KEPT, CopyPhase.CARRIED)),
    CopyPhase.GONE: frozenset(),
}


class Serving:
    """One copy at its keeper."""

    __slots__ = ("_away_since_ns", "_home_is_here", "appointment", "carry_after_ns", "phase", "stale")

    def __init__(self, appointment: int, carry_after_ns: int, now_ns: int, *, stale: bool = False) -> None:
        """*now_ns* is when the keeper found the copy or began it."""
        self.appointment = appointment
        self.carry_after_ns = carry_after_ns
        self.phase = CopyPhase.KEPT
        # There is a later appointment.
        self.stale = stale
        self._home_is_here = False
        # A keeper that has just started gives the home as much time as after a lost connection.
        self._away_since_ns = now_ns

    def home_came(self) -> None:
        """The home has said hello."""
        self._home_is_here = True

    def home_went(self, now_ns: int) -> None:
        """The connection to the home is gone."""
        if self._home_is_here:
            self._home_is_here = False
            self._away_since_ns = now_ns

    def gone_for_good(self, now_ns: int) -> None:
        """The home does not come back: it is given no time, even if it went before that was known."""
        self._home_is_here = False
        self._away_since_ns = now_ns - self.carry_after_ns

    def should_carry(self, now_ns: int) -> bool:
        """Whether the copy is to be given out.

        If the home is back within `carry_after_ns`, nothing is given out. A stale copy gives out what others
        lack, which is found out by meeting them; so it does not wait for the home to go.
        """
        if self.phase is not CopyPhase.KEPT or (self._home_is_here and not self.stale):
            return False
        return now_ns - self._away_since_ns >= self.carry_after_ns

    def go(self, phase: CopyPhase) -> None:
        """The keeper has done it. Raises AssertionError for a phase that may not follow."""
        if phase not in ALLOWED[self.phase]:
            raise AssertionError(f"a copy that is {self.phase.value} cannot be {phase.value}")
        self.phase = phase


class AskingKeepers:
    """A home that has just started asks its keepers what they gave out meanwhile.

    Until all have answered, or for `ask_ns`, it gives out none of its older messages, because some of them
    might be given out twice.
    """

    __slots__ = ("_began_ns", "_silent", "ask_ns")

    def __init__(self, keepers: Iterable[str], ask_ns: int, now_ns: int) -> None:
        self.ask_ns = ask_ns
        self._began_ns = now_ns
        self._silent = set(keepers)

    def answered(self, keeper: str) -> None:
        """The keeper has told all that it knows, or carries nothing."""
        self._silent.discard(keeper)

    def is_over(self, now_ns: int) -> bool:
        """Whether older messages may be given out, except those that somebody has in flight."""
        return not self._silent or now_ns - self._began_ns >= self.ask_ns
