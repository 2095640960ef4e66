"""The effects of one action on a selection of topics or channels, and its results, in sentences; PURE."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nsqadmin.changes.actions import Done
from nsqadmin.changes.audit import is_done
from nsqadmin.figures.present import plural
from nsqadmin.figures.sums import ChannelSum, TopicSum
from nsqadmin.pages.effects import cut_off

# The word on the button, and the word for what was done.
WORDS: Final = {
    "pause": ("Pause", "paused"),
    "unpause": ("Resume", "resumed"),
    "empty": ("Empty", "emptied"),
    "delete": ("Delete", "deleted"),
    "seek": ("Seek", "set"),
}
# A note has at most so many names.
_MOST_NAMES: Final = 8


@dataclass(frozen=True, slots=True)
class BulkItem:
    """One topic or one channel of a selection."""

    topic: str
    channel: str = ""

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.channel}" if self.channel else self.topic

    @property
    def kind(self) -> str:
        return "channel" if self.channel else "topic"


def topics_effects(action: str, found: Sequence[TopicSum]) -> list[str]:
    """Describe the effects of *action* on these topics."""
    owed = sum(one.depth + one.in_flight + one.deferred for one in found)
    own = sum(one.own_depth for one in found)
    consumers = sum(one.consumers for one in found)
    return {
        "pause": ["Messages stay in these topics; channels get no new ones until they are resumed."],
        "unpause": [f"What waits in these topics ({plural(own, 'message')}) goes on to their channels."],
        "empty": [f"What waits in the topics themselves ({plural(own, 'message')}) is permanently deleted."],
        "delete": [
            f"{plural(owed, 'unfinished message')} and all channels are permanently deleted.",
            cut_off(consumers),
        ],
    }[action]


def channels_effects(action: str, found: Sequence[ChannelSum]) -> list[str]:
    """Describe the effects of *action* on these channels."""
    waiting = sum(one.depth for one in found)
    owed = waiting + sum(one.in_flight_count + one.deferred_count for one in found)
    consumers = plural(sum(one.client_count for one in found), "consumer")
    return {
        "pause": [
            f"Delivery to {consumers} stops until these channels are resumed.",
            f"Waiting and new messages are kept ({plural(waiting, 'message')}).",
        ],
        "unpause": [f"{plural(waiting, 'message')} waiting will be delivered to {consumers}."],
        "empty": [
            f"{plural(owed, 'message')}, in flight and deferred ones as well, will be permanently deleted.",
            f"Connections stay: {consumers}.",
        ],
        "delete": [
            f"What is not finished yet ({plural(owed, 'message')}) is permanently deleted.",
            cut_off(sum(one.client_count for one in found)),
        ],
    }[action]


def seeks_effects(owed_now: int, owed_then: dict[str, int]) -> list[str]:
    """Describe what channels owe now and would owe after a seek, in all and on each node."""
    found = [f"Backlog {owed_now:,} → {sum(owed_then.values()):,}."]
    nodes = sorted(owed_then)
    found += [f"{node}: {owed_then[node]:,} afterwards." for node in nodes[:_MOST_NAMES]]
    if len(nodes) > _MOST_NAMES:
        found.append(f"And {len(nodes) - _MOST_NAMES} more nodes.")
    return [
        *found,
        "Earlier messages are skipped; later ones are delivered again.",
    ]


def summary(done: Sequence[Done], kind: str) -> tuple[list[str], list[str]]:
    """Return the results by node: details of what was done, and warnings about what was not."""
    good: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    silent: Counter[str] = Counter()
    for one in done:
        # A node that does not answer fails for all of them, so it is reported once.
        silent.update(one.silent)
        for node, word in one.results:
            if is_done(word):
                good[node] += 1
            elif node not in one.silent:
                failed[f"{node}: {word}"] += 1
    by_number: dict[int, list[str]] = {}
    for node, number in sorted(good.items()):
        by_number.setdefault(number, []).append(node)
    details = [
        f"{plural(number, kind)} on {_named(nodes)}"
        for number, nodes in sorted(by_number.items(), reverse=True)
    ]
    warnings = [f"{text} ({plural(number, kind)})" for text, number in failed.most_common(_MOST_NAMES)]
    warnings += [
        f"{node} was not reached: {plural(number, kind)} did not change there"
        for node, number in silent.most_common(_MOST_NAMES)
    ]
    return details, warnings


def _named(nodes: Sequence[str]) -> str:
    if len(nodes) > _MOST_NAMES:
        return f"each of {len(nodes)} nodes"
    return ", ".join(nodes)
