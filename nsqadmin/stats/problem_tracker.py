"""The start of each problem, and which are shown: badges must not flicker or appear too early; PURE.

The duration of a problem does not depend on the time of day. Setting the clock begins and ends no problem.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from nsqadmin.stats.instant import Instant
from nsqadmin.stats.problems import Level, Problem, ProblemKey

# For so long after a start, problems of an earlier run stay until they are evaluated again.
RESTORED_S: Final = 30.0

# Returns why a problem cannot be evaluated at present; empty if it can.
Unjudged = Callable[[Problem], str]


@dataclass(slots=True)
class _Entry:
    problem: Problem
    began: Instant
    seen: Instant
    shown: bool = False
    # Whether it is known from an earlier run only.
    restored: bool = False


class ProblemTracker:
    """Stores the problems of each round and returns those to show; the cost grows with their number."""

    def __init__(self) -> None:
        self._entries: dict[ProblemKey, _Entry] = {}

    def restore(self, problems: Iterable[Problem], now: Instant) -> None:
        """Store the problems of an earlier run, each with its start."""
        for one in problems:
            began = one.began or now
            self._entries[one.key] = _Entry(one, began, now, shown=True, restored=True)

    def note(
        self,
        problems: Iterable[Problem],
        now: Instant,
        topic: str = "",
        unjudged: Unjudged = lambda _: "",
    ) -> list[Problem]:
        """Store all problems of one round, or all of one *topic*, and return those to show.

        A problem that is no longer found, but is *unjudged*, stays with its last known state.
        """
        found: set[ProblemKey] = set()
        for problem in problems:
            found.add(problem.key)
            entry = self._entries.get(problem.key)
            if entry is None:
                began = problem.began or now.after(-problem.when.been_s)
                entry = self._entries[problem.key] = _Entry(problem, began, now)
            entry.problem = problem
            entry.seen = now
            entry.restored = False
        return self._shown(now, found, topic, unjudged)

    def _shown(self, now: Instant, found: set[ProblemKey], topic: str, unjudged: Unjudged) -> list[Problem]:
        shown: list[Problem] = []
        for key, entry in list(self._entries.items()):
            if topic and key[1] != topic:
                continue
            problem = entry.problem
            lasted_s = now.since(entry.began)
            why = ""
            if key not in found:
                why = unjudged(problem) if entry.shown else ""
                if not why and entry.restored and now.since(entry.seen) < RESTORED_S:
                    why = "nsqadmin was started"
                if not why and (not entry.shown or now.since(entry.seen) >= problem.when.stays_s):
                    del self._entries[key]
                    continue
            if not entry.shown and lasted_s < problem.when.shown_s:
                continue
            entry.shown = True
            entry.began = now.reading(entry.began)
            level = Level.WARNING if lasted_s < problem.when.alert_s else problem.level
            shown.append(replace(problem, level=level, began=entry.began, last_known=why))
        return shown
