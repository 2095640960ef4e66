"""The effects of actions on messages, and their results, in sentences."""

from collections.abc import Mapping, Sequence
from typing import Final

from nsqadmin.changes.messages import Handled
from nsqadmin.collecting.messages import SeekPreview
from nsqadmin.figures.present import plural

_MOST_NODES: Final = 8
_DONE: Final = {
    "finish": "finished",
    "requeue": "requeued",
    "send": "sent",
    "cancel": "cancelled",
    "send_back": "sent back",
}
# For one message, and for several.
_MEANS: Final = {
    "finish": (
        "The channel is done with it: no consumer gets it again. Other channels keep theirs.",
        "The channel is done with them: no consumer gets them again. Other channels keep theirs.",
    ),
    "requeue": (
        "It waits again, behind what waits; who has it in flight loses it.",
        "They wait again, behind what waits; who has one in flight loses it.",
    ),
    "send": (
        "It waits for a consumer at once, not for its time.",
        "They wait for a consumer at once, not for their time.",
    ),
    "cancel": (
        "It never comes: the channel is done with it.",
        "They never come: the channel is done with them.",
    ),
    "send_back": (
        "It is published again to the channel it came from, to no other, and leaves this topic.",
        "They are published again to the channels they came from, to no others, and leave this topic.",
    ),
}


def handled_effects(act: str, dry: Handled, *, one: bool) -> list[str]:
    """Describe the result of a dry run."""
    least = "At least " if dry.unfinished else ""
    on = f" on {plural(sum(count > 0 for count in dry.counts.values()), 'nsqd')}" if not one else ""
    found = [] if one else [f"{least}{plural(dry.total, 'message')}{on} would be {_DONE[act]}."]
    found.append(_MEANS[act][not one])
    found += [f"{plural(count, 'dead letter')} cannot go: {why}." for why, count in dry.left.items()]
    if dry.silent:
        found.append(f"These are not reached: {_named(dry.silent)}.")
    return found


def seek_effects(
    previews: Sequence[SeekPreview], owed: Mapping[str, int], failed: Sequence[str]
) -> list[str]:
    """Describe what the channel owes now and would owe after a seek, in all and on each node."""
    now, then = sum(owed.get(one.node, 0) for one in previews), sum(one.owed for one in previews)
    found = [f"Backlog {now:,} → {then:,}."]
    for one in previews[:_MOST_NODES]:
        since = f", the first of them published at {_moment(one.first)}" if one.first else ""
        found.append(f"{one.node}: {owed.get(one.node, 0):,} now, {one.owed:,} afterwards{since}.")
    if len(previews) > _MOST_NODES:
        found.append(f"And {len(previews) - _MOST_NODES} more nodes.")
    found.append("Earlier messages are skipped; later ones are delivered again.")
    found += [f"Not there: {sentence}." for sentence in failed]
    return found


def done_note(act: str, topic: str, channel: str, done: Handled) -> tuple[str, list[str]]:
    """Describe what was done, and return warnings about what was not."""
    place = f"{topic}/{channel}" if channel else topic
    on = plural(len(done.counts), "nsqd")
    if act == "seek":
        text = f"Channel {place} was set on {on}; it owes {plural(done.total, 'message')} from there on."
    else:
        of = f" of {done.found:,}" if act == "send_back" and done.found != done.total else ""
        were = "was" if done.total == 1 else "were"
        text = f"{plural(done.total, 'message')}{of} of {place} {were} {_DONE[act]}."
    warnings = [f"{plural(count, 'dead letter')} stayed: {why}" for why, count in done.left.items()]
    if done.unfinished:
        warnings.append("there are more: do it again to go on")
    if done.silent:
        warnings.append(f"these were not reached, nothing changed there: {_named(done.silent)}")
    return text, warnings


def _named(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - _MOST_NODES} more" if len(nodes) > _MOST_NODES else ""
    return ", ".join(nodes[:_MOST_NODES]) + more


def _moment(time: str) -> str:
    """Write a time to the second for people to recognize."""
    return f"{time[:19].replace('T', ' ')} UTC"
