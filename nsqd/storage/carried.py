"""Opening a copy of another nsqd's log, to serve it as that nsqd would if it had just started.

The folder is a copy of that nsqd's folder, byte for byte and some moments old, so it is recovered like a
topic after a crash. Checkpoints beside the copy say what this nsqd finished when it carried the log before;
this is then united with what was recovered. Opening takes as long as a start, so it may run in a thread,
before `carried.attach`.
"""

from pathlib import Path

from nsqd.engine import facts, finishing
from nsqd.engine.broker import Broker
from nsqd.engine.carried_topic import CarriedTopic
from nsqd.engine.channel import Channel
from nsqd.engine.generations import lasting
from nsqd.engine.journal import WIDTH
from nsqd.engine.state import OwedState, TopicState, line_up
from nsqd.log.happened import Mark
from nsqd.log.ids import MessageIds
from nsqd.log.ranges import Ranges, merged, without
from nsqd.storage import restoring
from nsqd.storage.carried_store import HERE, CarriedStore
from nsqd.storage.data_path import DataPath
from nsqd.storage.slots import NAMES, CheckpointSlots


def open_carried(
    data: DataPath, broker: Broker, folder: Path, name: str, home: str, node_id: int
) -> CarriedTopic:
    """The topic whose copy lies in *folder*; *home* names the data path it came from, *node_id* its node.

    Nobody may write into the folder from now on. Raises OSError, and NewerVersion.
    """
    store = CarriedStore(data.disk, folder, data.warn, data.cache, data.open_files)
    slots = CheckpointSlots(data.disk, folder)
    state = slots.load(data.warn, name)
    unusable = state is None and slots.damaged
    found = store.recover(None if unusable else state.mark if state else Mark())
    ids = MessageIds(node_id)
    for origin in store.origins():
        ids.recognise(origin)
    topic = CarriedTopic(name, home, ids, store, broker.wall, broker.settings_of)
    topic.log.kept_from = store.end if store.first_seq is None else store.first_seq
    if state is not None:
        topic.log.kept_from = state.kept_from
        restoring.fill(topic, state)
    topic.unfounded = state is None and not restoring.is_told_whole(found)
    next_seq = state.mark.next if state else 0
    stored = restoring.relive(topic, found.happenings, next_seq, data.warn)
    topic.log.next_seq = store.end
    restoring.recall_had(topic, state.had if state else None, stored, found.damaged, store)
    topic.held = False
    topic.pump()
    topic.known_at_home = {one.name: one.generation for one in topic.channels.values()}
    here = store.checkpoints.load(data.warn, name)
    if here is not None:
        recall(topic, here)
        # The home had paused the topic, and somebody here has unpaused it since.
        topic.pump()
    return topic


def forget_here(data: DataPath, folder: Path) -> None:
    """Remove what this nsqd knows of the copy beyond its files. Raises OSError.

    Called when the home has been told all of it, and the home's note of that is in the copy.
    """
    for name in NAMES:
        try:
            data.disk.remove(folder / HERE / name)
        except FileNotFoundError:
            continue


def recall(topic: CarriedTopic, here: TopicState) -> None:
    """Unite *topic* with what this nsqd knew of it at its last checkpoint."""
    topic.paused = here.paused
    topic.given_up = here.given_up
    had, end = here.had or [], topic.log.next_seq
    for name, generation in here.gone.items():
        channel = topic.channels.get(name)
        if channel is not None and channel.generation == lasting(generation):
            # The home may have gone on with the channel since.
            finishing.unite(channel, had, topic.log.next_seq)
            # While the topic is paused, what the home has published since waits at the topic.
            if not (channel.owed(0, end) or topic.backlog.owed(0, end)):
                topic.remove_channel(name)
    for name, owed in here.channels.items():
        generation = lasting(owed.generation)
        channel = topic.channels.get(name)
        if channel is None:
            if topic.gone.get(name) == generation:
                continue
            channel = topic.add_channel(name, owed.finished.missing(0, owed.end), generation)
        elif channel.generation != generation:
            # The home has created another channel of that name since.
            continue
        channel.paused = owed.paused
        finished = facts.finished_of(owed.finished, owed.end, owed.ahead, had)
        finishing.unite(channel, finished, topic.log.next_seq)
        _recall_times(channel, owed)
    if not topic.channels:
        waiting = facts.finished_of(here.backlog.finished, here.backlog.end, [], had)
        topic.backlog.take_out_ranges(waiting)
        for start, end in waiting:
            topic.backlog.finished.add(start, end)


def _recall_times(channel: Channel, owed: OwedState) -> None:
    """Restore when deferred messages are due, and how often messages were delivered."""
    offset_ns = channel.wall.offset_ns
    tried: Ranges = []
    for at in range(0, len(owed.tries), WIDTH):
        for start, end in channel.owed(owed.tries[at + 1], owed.tries[at + 2]):
            channel.attempts.update(dict.fromkeys(range(start, end), owed.tries[at]))
            tried.append((start, end))
    settled = channel.finished.copy()
    for at in range(len(owed.dues) - WIDTH, -1, -WIDTH):
        for start, end in settled.missing(owed.dues[at + 1], min(owed.dues[at + 2], channel.end)):
            settled.add(start, end)
            channel.take_out_ranges([(start, end)])
            channel.put_off(start, end, max(1, owed.dues[at] - offset_ns))
    deferred = merged([(start, end) for _, start, end in channel.deferred.runs()])
    waiting = without(merged(tried), deferred)
    channel.take_out_waiting(waiting)
    line_up(channel, waiting)
