"""Reports lasting problems and their end to an endpoint, except muted ones."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from nsqadmin.collecting.views import Round
from nsqadmin.stats.instant import Instant
from nsqadmin.stats.problems import ALERT_S, Level, Problem, ProblemKey

MUTE_S: Final = 3600.0


def key_text(key: ProblemKey) -> str:
    """Name a problem for use in an address; no part of the name contains a blank."""
    return " ".join(part.replace(" ", "-") or "-" for part in key)


def subject_of(text: str) -> tuple[str, str, str]:
    """Return topic, channel and node of the problem that :func:`key_text` named, empty where it has none."""
    words = ["" if word == "-" else word for word in text.split(" ")]
    _, topic, channel, node, *_ = (*words, "", "", "", "")
    return topic, channel, node


class Alerts:
    """Follows the cluster; *notify* receives a word for the log and an object."""

    def __init__(self, notify: Callable[[str, dict[str, Any]], None], form: str) -> None:
        self._notify = notify
        self._form = form
        self._notified: dict[ProblemKey, Problem] = {}
        # The end of each mute.
        self._muted: dict[str, Instant] = {}
        # The current problems, for /metrics.
        self.now: tuple[Problem, ...] = ()

    def restore(self, problems: Iterable[Problem], now: Instant) -> None:
        """Restore the *problems* of an earlier run. Those that lasted were reported already."""
        for one in problems:
            if one.level is Level.PROBLEM and one.began is not None and now.since(one.began) >= ALERT_S:
                self._notified[one.key] = one

    async def follow(self, this: Round) -> None:
        self.now = tuple(one for one in this.problems if one.level is Level.PROBLEM)
        self._muted = {
            key: this.now.reading(until) for key, until in self._muted.items() if until.at_ns > this.now.at_ns
        }
        serious = {one.key: one for one in self.now}
        for key, problem in serious.items():
            lasts = problem.began is None or this.now.since(problem.began) >= ALERT_S
            if lasts and key not in self._notified and not self.muted_until(problem):
                self._notified[key] = problem
                self._notify("problem", self._news("firing", problem))
        for key in [key for key in self._notified if key not in serious]:
            self._notify("problem", self._news("resolved", self._notified.pop(key)))

    def mute(self, key: str, now: Instant) -> None:
        """Report nothing about the problem *key* for an hour."""
        self._muted[key] = now.after(MUTE_S)

    def unmute(self, key: str) -> None:
        self._muted.pop(key, None)

    def muted_until(self, problem: Problem) -> float:
        """Return the time of day until which *problem* is muted; zero if it is not."""
        # One problem is muted, or all problems of its cause.
        keys = key_text(problem.key), key_text((problem.kind, "", "", ""))
        return max((self._muted[key].at_s for key in keys if key in self._muted), default=0.0)

    def _news(self, status: str, problem: Problem) -> dict[str, Any]:
        place = "/".join(filter(None, (problem.topic, problem.channel))) or problem.node
        if self._form == "slack":
            word = "Over" if status == "resolved" else "Problem"
            return {"text": f"{word}: {place} {problem.kind}. {problem.sentence}"}
        return {"status": status, **problem.to_json(), "messages": problem.messages}
