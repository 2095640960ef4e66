"""Answers that are requested only on demand, once for all readers."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from nsqadmin.collecting.work import Work
from nsqclient.wire.node_error import NodeError

Key = TypeVar("Key", bound=Hashable)
T = TypeVar("T")

# Answers that no reader has requested in this time are dropped.
FORGET_S: Final = 30.0


@dataclass(slots=True)
class _Entry(Generic[T]):
    asked_at: float
    task: "asyncio.Task[None]"
    # The last good answer, which may be older than the pending request.
    value: T | None = None
    error: NodeError | None = None
    wanted_at: float = field(default_factory=time.monotonic)


class Shared(Generic[Key, T]):
    """The latest answer to each request."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._entries: dict[Key, _Entry[T]] = {}

    async def get(
        self, key: Key, ask: Callable[[], Awaitable[T]], *, age_s: float, patience_s: float
    ) -> T | NodeError | None:
        """Return an answer to *key* that is at most *age_s* old, or None if none has arrived yet.

        A request that has been pending for longer than *patience_s* delays no reader.
        """
        now = time.monotonic()
        self.drop(lambda _, wanted_at: now - wanted_at > FORGET_S)
        known = self._entries.get(key)
        if known is not None and not age_s and not known.task.done():
            # It was sent before the answer is wanted.
            await asyncio.wait({known.task}, timeout=patience_s)
            known = self._entries.get(key)
        if known is None or (known.task.done() and known.asked_at < now - age_s):
            task = self._work.start(self._ask(key, ask), "shared")
            value = known.value if known is not None else None
            known = self._entries[key] = _Entry(time.monotonic(), task, value)
        known.wanted_at = now
        if now - known.asked_at < patience_s:
            await asyncio.wait({known.task}, timeout=patience_s)
        return known.error if known.task.done() and known.error is not None else known.value

    async def _ask(self, key: Key, ask: Callable[[], Awaitable[T]]) -> None:
        try:
            value = await ask()
        except NodeError as error:
            self._entries[key].error = error
        else:
            self._entries[key].value = value

    def drop(self, which: Callable[[Key, float], bool]) -> None:
        """Drop the answers that *which* selects by key and time of the last reader; requests stay pending."""
        for key, entry in list(self._entries.items()):
            if which(key, entry.wanted_at) and entry.task.done():
                del self._entries[key]

    def expire(self, which: Callable[[Key], bool]) -> None:
        """Let the next readers request the answers that *which* selects again."""
        for key, entry in self._entries.items():
            if which(key):
                entry.asked_at = 0.0
        self.drop(lambda key, _: which(key))

    def wanted(self) -> dict[Key, float]:
        """Return the time of the last reader of each received answer."""
        return {key: entry.wanted_at for key, entry in self._entries.items() if entry.task.done()}
