"""When nsqlookupd is ready after a start: once the nsqds from before the start are back. Pure.

An nsqlookupd starts with an empty registry, and a lookup answered from it would hide active topics.
The other nsqlookupds list the earlier nsqds. When none of them can, readiness waits as long as an nsqd
needs to reconnect.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from nsqlookupd.registry import NodeKey, Registry

Expected: TypeAlias = Mapping[NodeKey, frozenset[str]]
"""nsqds with the topics of each."""

_MAX_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a start may take."""

    silent_ns: int
    """How long to wait for nsqds when no other nsqlookupd tells which there are."""
    max_ns: int
    """How long to wait for single nsqds that another nsqlookupd named."""


class Readiness:
    """Begins as not ready and becomes ready once; it never goes back."""

    def __init__(self, registry: Registry, patience: Patience, now_ns: int) -> None:
        self._registry = registry
        self._patience = patience
        self._began_ns = now_ns
        self._expected: Expected | None = None
        self._complete_before = False
        self.ready = False
        self.reason = "waiting for every nsqd to come back"
        """Why it is not ready, or how it became so."""

    def learn_topics(self, answers: Iterable[Expected]) -> None:
        """Take the answers of nsqlookupds that were up all the time; they replace earlier answers."""
        expected: dict[NodeKey, frozenset[str]] = {}
        for answer in answers:
            for node, topics in answer.items():
                expected[node] = expected.get(node, frozenset()) | topics
            self._expected = expected

    def check(self, now_ns: int) -> bool:
        """Whether lookups can be answered by now."""
        if not self.ready:
            self._check(now_ns - self._began_ns)
        return self.ready

    def _check(self, waited_ns: int) -> None:
        if self._expected is None:
            if waited_ns >= self._patience.silent_ns:
                self._be_ready(f"{waited_ns / 1e9:.1f}s are over, the time nsqds need to come back")
            return
        missing = self._registry.missing(self._expected)
        if missing:
            self._complete_before = False
            self.reason = _sentence(missing, len(self._expected))
            if waited_ns >= self._patience.max_ns and not self._many_are_absent(self._expected):
                self._be_ready(f"no longer {self.reason}, {waited_ns / 1e9:.1f}s are over")
        elif self._complete_before:
            self._be_ready(f"all {len(self._expected)} nsqd are back after {waited_ns / 1e9:.1f}s")
        else:
            # The channels of the last topic are announced after it, so check once more.
            self._complete_before = True

    def _many_are_absent(self, expected: Expected) -> bool:
        """Whether more than one nsqd in ten has not connected here, and more than one.

        A single nsqd may be gone before the others notice. Many are there, but do not know this nsqlookupd
        yet, because it was added, or cannot connect to it; without them most answers would be wrong.
        """
        absent = self._registry.missing(dict.fromkeys(expected, frozenset()))
        return len(absent) > max(1, len(expected) // 10)

    def _be_ready(self, reason: str) -> None:
        self.ready = True
        self.reason = reason


def _sentence(missing: list[NodeKey], known: int) -> str:
    names = [f"{address}:{tcp_port}" for address, tcp_port, _ in sorted(missing)]
    if len(names) > _MAX_NAMED:
        names = [*names[:_MAX_NAMED], f"{len(names) - _MAX_NAMED} more"]
    return f"waiting for {len(missing)} of {known} nsqd: {', '.join(names)}"
