"""Since when each concern lasts, and which are shown: marks must not flicker or appear too early; PURE."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from nsqadmin.figures.attention import Concern, ConcernKey, Level


@dataclass(slots=True)
class _Entry:
    concern: Concern
    since_s: float
    seen_s: float
    shown: bool = False


class TroubleBook:
    """Stores the concerns of each round and returns those to show; its cost grows with their number."""

    def __init__(self) -> None:
        self._entries: dict[ConcernKey, _Entry] = {}

    def note(self, concerns: Iterable[Concern], now_s: float, topic: str = "") -> list[Concern]:
        """Store all *concerns* of one round, or all of one *topic*, and return those to show."""
        found: set[ConcernKey] = set()
        for concern in concerns:
            found.add(concern.key)
            entry = self._entries.get(concern.key)
            if entry is None:
                since_s = concern.since_s or now_s - concern.when.been_s
                entry = self._entries[concern.key] = _Entry(concern, since_s, now_s)
            entry.concern = concern
            entry.seen_s = now_s
        return self._shown(now_s, found, topic)

    def _shown(self, now_s: float, found: set[ConcernKey], topic: str) -> list[Concern]:
        shown: list[Concern] = []
        for key, entry in list(self._entries.items()):
            if topic and key[1] != topic:
                continue
            concern = entry.concern
            lasted_s = now_s - entry.since_s
            if key not in found and (not entry.shown or now_s - entry.seen_s >= concern.when.stays_s):
                del self._entries[key]
                continue
            if not entry.shown and lasted_s < concern.when.shown_s:
                continue
            entry.shown = True
            level = Level.WATCH if lasted_s < concern.when.trouble_s else concern.level
            shown.append(replace(concern, level=level, since_s=entry.since_s))
        return shown
