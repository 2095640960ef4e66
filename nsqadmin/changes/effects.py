"""The effects of actions and their results, in sentences; PURE."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from nsqadmin.changes.audit import is_done
from nsqadmin.changes.commands import ActionResult
from nsqadmin.collecting.messages import SeekPreview
from nsqadmin.stats.present import MAX_NAMES, named, plural
from nsqadmin.stats.sums import ChannelSum, TopicSum

_MESSAGES: Final = {
    "finish": "No further delivery on this channel. Other channels are not affected.",
    "requeue": "Moved to the back of the queue; in-flight deliveries are revoked.",
    "send": "Delivered now, before the end of the delay.",
    "cancel": "Never delivered: marked finished for this channel.",
    "send_back": "Published again to the channel of origin, to no other, and removed from this topic.",
}


def queue_effects(action: str, queues: Sequence[TopicSum] | Sequence[ChannelSum]) -> list[str]:
    """Describe the effects of pausing, resuming, emptying or deleting topics or channels."""
    nodes = f" on {plural(queues[0].nodes, 'nsqd')}" if len(queues) == 1 else ""
    topics = [one for one in queues if isinstance(one, TopicSum)]
    channels = [one for one in queues if isinstance(one, ChannelSum)]
    names = [name for topic in topics for name in topic.channel_names]
    if topics:
        waiting = plural(sum(topic.own_depth for topic in topics), "message")
        unfinished = sum(topic.depth + topic.in_flight + topic.deferred for topic in topics)
        clients = sum(topic.consumers for topic in topics)
        receivers = plural(len(names), "channel")
    else:
        depth = sum(channel.depth for channel in channels)
        in_flight = sum(channel.in_flight_count for channel in channels)
        deferred = sum(channel.deferred_count for channel in channels)
        waiting, unfinished = plural(depth, "message"), depth + in_flight + deferred
        clients = sum(channel.client_count for channel in channels)
        receivers = plural(clients, "consumer")
    match action:
        case "pause":
            kept = (
                "Publishers are not affected."
                if topics
                else f"Waiting and new messages are kept ({waiting})."
            )
            return [f"Delivery to {receivers}{nodes} stops until resumed.", kept]
        case "unpause":
            return [f"{waiting} waiting{nodes} will be delivered to {receivers}."]
        case "empty" if topics:
            deleted = f"{waiting} waiting in the topic itself{nodes} will be permanently deleted."
            return [deleted, f"Messages of {receivers} stay."]
        case "empty":
            parts = f"{depth:,} waiting, {in_flight:,} in flight, {deferred:,} deferred"
            deleted = f"{plural(unfinished, 'message')}{nodes} ({parts}) will be permanently deleted."
            return [deleted, f"{receivers} will stay connected."]
    removed = f"{plural(len(queues), 'topic' if topics else 'channel')}"
    if topics:
        removed += f" and {receivers}" + (f" ({named(names)})" if len(topics) == 1 and names else "")
    again = (
        "Publishers that continue create topics again."
        if topics
        else "Consumers that subscribe create channels again, empty."
    )
    return [
        f"{removed} will be removed{nodes.replace(' on ', ' from ')}.",
        f"{plural(unfinished, 'unfinished message')} will be permanently deleted.",
        disconnected(clients),
        again,
    ]


def tombstone_effects(node: str, topic: TopicSum | None) -> list[str]:
    """Describe a tombstone; *topic* is the topic on that node, None if the node does not hold it."""
    hidden = f"No nsqlookupd sends consumers of this topic to {node} for a while (45 s by default)."
    if topic is None:
        return [hidden, "The node does not hold the topic now."]
    unfinished = topic.depth + topic.in_flight + topic.deferred
    return [
        hidden,
        f"Then the topic and {plural(unfinished, 'unfinished message')} will be permanently deleted there.",
        disconnected(topic.consumers),
        "Move its publishers to another node first, or they will create it here again.",
    ]


def silent_effects(silent: Sequence[str]) -> list[str]:
    """Describe the effect on nodes that hold the topic and are unreachable or not registered."""
    if not silent:
        return []
    who = "1 nsqd that holds it is" if len(silent) == 1 else f"{len(silent)} nsqds that hold it are"
    return [f"{who} not reached ({named(silent)}): nothing changes there, unless the request arrives late."]


def disconnected(consumers: int) -> str:
    """Say how many consumers lose their connection."""
    return (
        f"{plural(consumers, 'consumer')} will be disconnected." if consumers else "No consumer is connected."
    )


def message_effects(action: str, done: str, dry: ActionResult, *, one: bool) -> list[str]:
    """Describe the result of a dry run; *done* is the participle of the action."""
    found = []
    if not one:
        least = "At least " if dry.unfinished else ""
        on = plural(sum(count > 0 for count in dry.counts.values()), "nsqd")
        found.append(f"{least}{plural(dry.total, 'message')} on {on} would be {done}.")
    found.append(_MESSAGES[action])
    found += [f"{plural(count, 'dead letter')} cannot go: {why}." for why, count in dry.left.items()]
    if dry.silent:
        found.append(f"These are not reached: {named(dry.silent)}.")
    return found


def seek_effects(
    previews: Iterable[SeekPreview], backlogs: Mapping[str, int], failed: Sequence[str]
) -> list[str]:
    """Describe the backlog of the channels now and after a seek, in total and on each node."""
    then: Counter[str] = Counter()
    first: dict[str, str] = {}
    for one in previews:
        then[one.node] += one.unfinished
        if one.first:
            first[one.node] = min(first.get(one.node, one.first), one.first)
    found = [f"Backlog {sum(backlogs.get(node, 0) for node in then):,} → {then.total():,}."]
    for node in sorted(then)[:MAX_NAMES]:
        since = f", the first of them published at {_moment(first[node])}" if node in first else ""
        found.append(f"{node}: {backlogs.get(node, 0):,} now, {then[node]:,} afterwards{since}.")
    if len(then) > MAX_NAMES:
        found.append(f"And {len(then) - MAX_NAMES} more nodes.")
    return [
        *found,
        "Earlier messages are skipped; later ones are delivered again.",
        *(f"Not there: {sentence}." for sentence in failed),
    ]


def message_result(name: str, done_word: str, place: str, done: ActionResult) -> tuple[str, list[str]]:
    """Describe the handled messages, and return warnings about those not handled."""
    if name == "seek":
        backlog = f"its backlog from there on is {plural(done.total, 'message')}"
        text = f"Channel {place} was set on {plural(len(done.counts), 'nsqd')}; {backlog}."
    else:
        of = f" of {done.found:,}" if name == "send_back" and done.found != done.total else ""
        were = "was" if done.total == 1 else "were"
        text = f"{plural(done.total, 'message')}{of} of {place} {were} {done_word}."
    warnings = [f"{plural(count, 'dead letter')} stayed: {why}" for why, count in done.left.items()]
    if done.unfinished:
        warnings.append("there are more: do it again to continue")
    return text, warnings


def summary(done: Sequence[ActionResult], kind: str) -> tuple[list[str], list[str]]:
    """Return the results by node: details of successes, and warnings about failures."""
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
        f"{plural(number, kind)} on"
        f" {', '.join(nodes) if len(nodes) <= MAX_NAMES else f'each of {len(nodes)} nodes'}"
        for number, nodes in sorted(by_number.items(), reverse=True)
    ]
    warnings = [f"{text} ({plural(number, kind)})" for text, number in failed.most_common(MAX_NAMES)]
    warnings += [
        f"{node} was not reached: {plural(number, kind)} did not change there"
        for node, number in silent.most_common(MAX_NAMES)
    ]
    return details, warnings


def _moment(time: str) -> str:
    """Write a time to the second for people to recognize."""
    return f"{time[:19].replace('T', ' ')} UTC"
