"""Since when each concern lasts, and which are shown: marks must not flicker or appear too early; PURE.

How long a concern lasts does not depend on the time of day: setting the clock begins and ends no trouble.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from nsqadmin.figures.attention import Concern, ConcernKey, Level
from nsqadmin.figures.instant import Instant


@dataclass(slots=True)
class _Entry:
    concern: Concern
    began: Instant
    seen: Instant
    shown: bool = False


class TroubleBook:
    """Stores the concerns of each round and returns those to show; its cost grows with their number."""

    def __init__(self) -> None:
        self._entries: dict[ConcernKey, _Entry] = {}

    def note(self, concerns: Iterable[Concern], now: Instant, topic: str = "") -> list[Concern]:
        """Store all *concerns* of one round, or all of one *topic*, and return those to show."""
        found: set[ConcernKey] = set()
        for concern in concerns:
            found.add(concern.key)
            entry = self._entries.get(concern.key)
            if entry is None:
                began = concern.began or now.after(-concern.when.been_s)
                entry = self._entries[concern.key] = _Entry(concern, began, now)
            entry.concern = concern
            entry.seen = now
        return self._shown(now, found, topic)

    def _shown(self, now: Instant, found: set[ConcernKey], topic: str) -> list[Concern]:
        shown: list[Concern] = []
        for key, entry in list(self._entries.items()):
            if topic and key[1] != topic:
                continue
            concern = entry.concern
            lasted_s = now.since(entry.began)
            if key not in found and (not entry.shown or now.since(entry.seen) >= concern.when.stays_s):
                del self._entries[key]
                continue
            if not entry.shown and lasted_s < concern.when.shown_s:
                continue
            entry.shown = True
            entry.began = now.reading(entry.began)
            level = Level.WATCH if lasted_s < concern.when.trouble_s else concern.level
            shown.append(replace(concern, level=level, began=entry.began))
        return shown
