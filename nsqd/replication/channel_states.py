"""The channel state of a copy as frames, and how another copy's state changes it: rules 3 and 4. Pure.

Channel state is positive: it names finished messages. Nothing is concluded from "not pending".
"""

from collections.abc import Iterator
from typing import Final

from nsqd.engine import finished_ranges, promoted
from nsqd.engine.broker import Broker
from nsqd.engine.finished_ranges import FinishedRanges
from nsqd.engine.topic import Topic
from nsqd.log.ranges import Ranges, merged, without
from nsqd.replication.claims import NO_CHANNEL, ChannelKey
from nsqd.replication.fields import MAX_RANGES
from nsqd.replication.frames import ChannelState
from nsqd.storage.data_path import claim, extents_of

_NOTHING: Final[Ranges] = []


def pending_of(topic: Topic) -> dict[ChannelKey, Ranges]:
    """The messages that are pending on each channel and can be read here."""
    if topic.ephemeral:
        return {}
    readable = finished_ranges.readable(topic, extents_of(topic))
    end = topic.log.next_seq
    found = {
        (name, channel.generation): finished_ranges.intersection(channel.backlog.unfinished(0, end), readable)
        for name, channel in topic.channels.items()
        if not channel.ephemeral
    }
    if not any(not channel.ephemeral for channel in topic.channels.values()):
        found[NO_CHANNEL] = finished_ranges.intersection(topic.backlog.unfinished(0, end), readable)
    return {key: ranges for key, ranges in found.items() if ranges}


def states_of(
    topic: Topic, origin: bytes, copy: int, pending: dict[ChannelKey, Ranges]
) -> Iterator[ChannelState]:
    """Frames with the channel state of one topic; *pending* has its pending messages."""
    if topic.tombstoned:
        yield from _in_frames(
            origin, copy, topic.name, NO_CHANNEL, finished_ranges.stored_ranges(topic), _NOTHING, live=False
        )
    elif waiting := pending.get(NO_CHANNEL):
        yield from _in_frames(origin, copy, topic.name, NO_CHANNEL, _NOTHING, waiting, live=True)
    live = [name for name, channel in topic.channels.items() if not channel.ephemeral]
    for name in (*live, *topic.deleted_channels):
        known = finished_ranges.facts(topic, name)
        if known is None:
            continue
        key = (name, known.generation)
        finished = merged([*known.finished, *_elsewhere(topic, key)])
        yield from _in_frames(
            *(origin, copy, topic.name, key, finished, pending.get(key, _NOTHING)),
            live=name in topic.channels,
        )


def nothing_pending(topic: str, origin: bytes, copy: int) -> ChannelState:
    """The frame for a topic that the copy does not have any more."""
    return ChannelState(*(origin, copy, topic, *NO_CHANNEL), live=True, more=False, finished=(), pending=())


def _in_frames(
    origin: bytes, copy: int, topic: str, key: ChannelKey, finished: Ranges, pending: Ranges, *, live: bool
) -> Iterator[ChannelState]:
    parts = max(1, -(-max(len(finished), len(pending)) // MAX_RANGES))
    for part in range(parts):
        cut = slice(part * MAX_RANGES, (part + 1) * MAX_RANGES)
        yield ChannelState(
            *(origin, copy, topic, *key),
            live=live,
            more=part + 1 < parts,
            finished=tuple(finished[cut]),
            pending=tuple(pending[cut]),
        )


def merge(broker: Broker, topic: Topic, state: ChannelState) -> bool:
    """Merge the state that another copy has of this topic; True if it was news here.

    A topic without channels creates the channels in that state. Otherwise only a channel of the same
    generation is changed.
    """
    finished = merged(list(state.finished))
    if not state.channel:
        return bool(finished) and _finish_everywhere(broker, topic, finished)
    channel = topic.channels.get(state.channel)
    if channel is None:
        durable = [one for one in topic.channels.values() if not one.ephemeral]
        if durable or topic.deleted_channels.get(state.channel) == state.generation:
            return False
        if not state.live:
            return _finish_waiting(topic, finished)
        known = FinishedRanges(state.generation, finished)
        promoted.merge(broker, topic, state.channel, known, lambda: claim(topic))
        return True
    if channel.generation != state.generation:
        return False
    news = promoted.merge_finished(broker, topic, channel, finished) > 0
    return _remember(topic, (channel.name, channel.generation), finished) or news


def _remember(topic: Topic, key: ChannelKey, finished: Ranges) -> bool:
    """Remember finished messages that this copy never had, for others that have them; True if one is new."""
    if not topic.origin:
        return False
    known = _elsewhere(topic, key)
    found = merged([*known, *without(finished, finished_ranges.stored_ranges(topic))])
    if found == known:
        return False
    topic.finished_elsewhere[key] = found
    topic.changed = True
    return True


def _elsewhere(topic: Topic, key: ChannelKey) -> Ranges:
    return topic.finished_elsewhere.get(key, [])


def _finish_everywhere(broker: Broker, topic: Topic, finished: Ranges) -> bool:
    """The topic was emptied or deleted at another copy, which had these messages."""
    news = _finish_waiting(topic, finished)
    for channel in topic.channels.values():
        news = promoted.merge_finished(broker, topic, channel, finished) > 0 or news
    return news


def _finish_waiting(topic: Topic, finished: Ranges) -> bool:
    """Messages that no channel has yet were held by a channel or topic that was deleted."""
    news, _ = topic.backlog.remove(finished)
    topic.changed = topic.changed or bool(news)
    return bool(news)


def delete_below(broker: Broker, topic: Topic, position: int) -> bool:
    """The topic was deleted at its origin: finish all below *position*; True when nothing is left."""
    _finish_everywhere(broker, topic, [(0, position)])
    return not finished_ranges.pending_anywhere(topic)


def finished_here(topic: Topic, key: ChannelKey, ranges: Ranges) -> Ranges:
    """The part of *ranges* that is finished on this channel here, or was held when it was deleted."""
    name, generation = key
    known = finished_ranges.facts(topic, name)
    if known is None or known.generation != generation:
        return []
    return finished_ranges.intersection(merged(ranges), known.finished)
