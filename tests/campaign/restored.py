"""Starts from a disk and drains everything that is there, without a server."""

from nsqclient.wire.frames import FrameParser
from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel, Consumer
from nsqd.engine.dedup import key_of
from nsqd.engine.delivering import deliver
from nsqd.engine.settings import SettingsOf
from nsqd.engine.topic import Topic
from nsqd.log.cursor import Cursor
from nsqd.log.frames import Block
from nsqd.log.headers import extension
from nsqd.server import clock
from nsqd.storage.topic_log import store_of
from tests.campaign.headed import body_in, body_of, expected, id_of
from tests.campaign.model import Found, FoundChannel, FoundTopic
from tests.campaign.node import Storage, settings_of
from tests.campaign.places import DEAD
from tests.support.simulated_disk import SimulatedDisk
from tests.support.simulated_loop import SECOND

_YEAR_NS = 365 * 86_400 * SECOND
_PROBE = "probe"


class NotRestored(Exception):
    """The node could not start, or could not deliver its messages; the text says why."""


def key(body: bytes) -> int:
    """Return the key of the id of a message with this body. Raises ValueError without an id."""
    found = key_of(extension(expected(body)))
    if found is None:
        raise ValueError(body)
    return found


class _Sink:
    def send_messages(self, frames: list[bytes]) -> None: ...

    def close(self) -> None: ...


def read_back(
    disk: SimulatedDisk, warnings: list[str] | None = None, settings_of: SettingsOf = settings_of
) -> Found:
    """Start from *disk*, drain every channel, and return what was there; *warnings* gets the node's warnings.

    Raises NotRestored.
    """
    storage = Storage(disk, warnings, settings_of)
    storage.load()
    broker = storage.broker
    now_ns = clock.now_ns()
    found = Found({}, {}, 0)
    for name, topic in sorted(broker.topics.items()):
        found.forgotten |= _forgotten(topic, broker.wall.time_at(now_ns))
        found.topics[name] = _read_topic(broker, topic, found, now_ns)
    found.first_seq = min(
        [broker.sequences.first(now_ns), *(topic.sequence_end for topic in broker.topics.values())]
    )
    leaks = disk.leaks()
    for topic in broker.topics.values():
        store = store_of(topic)
        if store is not None:
            store.appender.close()
    if leaks or disk.open_paths:
        raise NotRestored(f"descriptors are left open: {leaks or disk.open_paths}")
    return found


def _forgotten(topic: Topic, now_ns: int) -> set[bytes]:
    """Return messages with an id that would be taken for new, although they are within the window.

    The window is the one before the newest message, because the clock may be behind. If the clock is ahead,
    because it was behind in the life before, the window is the one before now.
    """
    ids: list[tuple[int, bytes]] = []
    if topic.published is None:
        return set()
    for start, stop, block in Cursor(topic.log).scan(topic.log.log_start):
        if isinstance(block, Block) and block.has_headers:
            ids += [
                (block.timestamp_ns(seq), body)
                for seq in range(start, stop)
                if id_of(body := body_in(block, seq))
            ]
    newest_ns = max((at_ns for at_ns, _ in ids), default=0)
    return {
        body
        for at_ns, body in ids
        if max(newest_ns, now_ns) - at_ns < topic.published.window_ns
        and not topic.published.has(key(body), min(now_ns, at_ns) - topic.wall.offset_ns)
    }


def _read_topic(broker: Broker, topic: Topic, found: Found, now_ns: int) -> FoundTopic:
    paused = topic.paused
    next_seq = topic.sequence_end
    backlog = None
    if not topic.channels:
        topic.paused = False
        backlog = _drain(broker, topic.add_channel(_PROBE), found, now_ns)
        channels = {}
    else:
        topic.paused = False
        topic.pump()
        channels = {name: _drain(broker, c, found, now_ns) for name, c in sorted(topic.channels.items())}
    return FoundTopic(paused, channels, backlog, next_seq)


def _drain(broker: Broker, channel: Channel, found: Found, now_ns: int) -> FoundChannel:
    ids, wall = broker.ids, broker.wall
    paused, channel.paused = channel.paused, False
    due_by_seq = {seq: due_ns + wall.offset_ns for due_ns, seq in channel.backlog.deferred}
    lost = channel.lost_count
    consumer = Consumer(_Sink(), _YEAR_NS, extended=True)
    channel.subscribe(consumer, 0)
    channel.backlog.release_due(now_ns + 100 * _YEAR_NS)
    bodies, dues = [], {}
    seqs: set[int] = set()
    while channel.backlog.pending.count:
        frames, _ = deliver(channel, consumer, 1 << 30, now_ns, 1 << 30)
        if not frames:
            if channel.backlog.pending.count:
                raise NotRestored(f"{channel} gives nothing: {channel.stalled}")
            break
        for _, data in FrameParser().feed(b"".join(frames)):
            seq, body = ids.decode(data[10:26]), body_of(data[26:])
            if channel.topic_name == DEAD:
                # A crash may leave a dead letter twice, and its id differs from that of its message.
                bodies.append(body)
                continue
            if found.seqs.setdefault(body, seq) != seq:
                found.doubles.add(body)
                found.seqs[body] = max(seq, found.seqs[body])
            bodies.append(body)
            seqs.add(seq)
            if seq in due_by_seq:
                dues[body] = due_by_seq[seq]
    found.lost += channel.lost_count - lost
    return FoundChannel(paused, bodies, dues, seqs)
