"""Dead letters: messages that a channel no longer tries to deliver move to a separate topic.

A dead letter is written and made durable before its original is finished, in every mode of the node.
Otherwise a power cut could take the dead letter and leave a checkpoint in which its original is finished.
"""

import asyncio
from functools import partial
from typing import Final, NamedTuple, Protocol

from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel
from nsqd.engine.dead_letter_queue import DeadLetterMove, dead_letter_topic
from nsqd.engine.topic import Refused, Topic
from nsqd.log import cursor
from nsqd.log.encoder import Batch
from nsqd.log.frames import Block
from nsqd.log.gaps import CannotRead
from nsqd.log.headers import BadHeaders, extension, message
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.fsync import Callback
from nsqd.storage.topic_log import store_of

# How many messages of one channel are moved in one turn, which takes a few milliseconds.
_MESSAGES_PER_TURN: Final = 500
# Messages that could not be moved are tried again after this time.
_PAUSE_S: Final = 1.0


class _DeadLetter(NamedTuple):
    """A message that becomes a dead letter."""

    seq: int
    published_ns: int
    headers: dict[str, str]
    body: bytes


class BatchQueue(Protocol):
    """The storage of dead letters; `WriteBatch` implements it."""

    def request_turn(self) -> None: ...

    def when_stored(self, topic: Topic, callback: Callback, *, durable: bool = False) -> None: ...


class DeadLetterMover:
    """See the module."""

    def __init__(self, broker: Broker, write_batch: BatchQueue, log: Log, node: str) -> None:
        """*node* is the name of this nsqd in dead letters."""
        self._node = node
        self._broker = broker
        self._write_batch = write_batch
        self._log = log
        # Channels with messages being written or to be tried again later, and those with the latter.
        self._busy: set[Channel] = set()
        self._paused: set[Channel] = set()
        # Why moving fails, as it was last logged.
        self._failing: dict[Channel, str] = {}

    def move(self, channel: Channel) -> None:
        """Begin to move the messages that the channel gives up, unless that was begun already."""
        if channel in self._busy or not channel.backlog.dead_letter_queue.has_pending:
            return
        name = dead_letter_topic(channel.topic_name, channel.name, channel.settings)
        topic = self._broker.topic(name, clock_ns())
        self._busy.add(channel)
        store = store_of(topic)
        if store is not None and store.appender.failed:
            self._later(channel, [], f"{name}: {store.appender.failed}")
            return
        moves = channel.backlog.dead_letter_queue.take(_MESSAGES_PER_TURN)
        staged: list[DeadLetterMove] = []
        try:
            for move in moves:
                self._stage(channel, topic, move)
                staged.append(move)
        except (CannotRead, Refused) as error:
            self._later(channel, moves[len(staged) :], f"{name}: {str(error) or 'cannot read'}")
        if staged:
            self._write_batch.when_stored(topic, partial(self._written, channel, topic, staged), durable=True)

    def _stage(self, channel: Channel, topic: Topic, move: DeadLetterMove) -> None:
        """Stage copies of these messages, all of them or none. Raises CannotRead and Refused."""
        now_ns = clock_ns()
        letters = self._read(channel, move)
        extensions = [self._extension(channel, move, letter, now_ns) for letter in letters]
        if letters:
            bodies = [added + letter.body for added, letter in zip(extensions, letters, strict=True)]
            size = sum(map(len, extensions))
            topic.stage_batch(Batch(bodies, has_headers=True, extension_bytes=size), now_ns, moved=True)

    def _read(self, channel: Channel, move: DeadLetterMove) -> list[_DeadLetter]:
        """The messages of *move* that are still in the log. Raises CannotRead."""
        letters: list[_DeadLetter] = []
        move.lost = 0
        for start, stop, found in cursor.scan(channel.log, move.start, move.end):
            if not isinstance(found, Block):
                move.lost += stop - start
                if found.is_loss:
                    channel.log.stored_ranges.remove(start, stop)
                continue
            letters += [
                _DeadLetter(seq, found.timestamp_ns(seq), *message(found, seq)) for seq in range(start, stop)
            ]
        return letters

    def _extension(self, channel: Channel, move: DeadLetterMove, letter: _DeadLetter, now_ns: int) -> bytes:
        """The message's own headers, and headers that say where it comes from and why it is here."""
        added = {
            "dead-topic": channel.topic_name,
            "dead-channel": channel.name,
            "dead-id": (channel.ids or self._broker.ids).encode(letter.seq).decode(),
            "dead-node": self._node,
            "dead-attempts": str(channel.backlog.attempts.get(letter.seq, 0)),
            "dead-first": str(letter.published_ns),
            "dead-last": str(channel.wall.time_at(now_ns)),
            "dead-client": move.client,
            "dead-reason": move.reason,
        }
        try:
            return extension(letter.headers | added)
        except BadHeaders:
            # Together they exceed the limit.
            return extension(added)

    def _written(self, channel: Channel, topic: Topic, moves: list[DeadLetterMove], reason: str) -> None:
        """Finish the originals if the dead letters are durable, or try again later if *reason* is given."""
        if topic.deleted:
            reason = reason or "the topic was deleted"
        if reason:
            self._later(channel, moves, f"{topic.name}: {reason}")
            return
        count = 0
        for move in moves:
            count += channel.finish_dead(move)
        self._log.info(
            "TOPIC(%s): %d of channel %s are in %s", channel.topic_name, count, channel.name, topic.name
        )
        if channel not in self._paused:
            self._continue(channel)

    def _later(self, channel: Channel, moves: list[DeadLetterMove], reason: str) -> None:
        """Keep the messages of *moves* pending, and try them again."""
        if channel not in self._paused:
            self._paused.add(channel)
            asyncio.get_running_loop().call_later(_PAUSE_S, self._continue, channel)
        for move in reversed(moves):
            channel.backlog.dead_letter_queue.failed(move)
        if self._failing.get(channel) != reason:
            self._failing[channel] = reason
            self._log.error(
                "TOPIC(%s): dead letters of channel %s stay there, will try again - %s",
                channel.topic_name,
                channel.name,
                reason,
            )

    def _continue(self, channel: Channel) -> None:
        """Request a write batch that moves the next messages to the dead letters."""
        if channel in self._paused:
            self._paused.discard(channel)
        else:
            self._failing.pop(channel, None)
        self._busy.discard(channel)
        if channel.deleted:
            self._failing.pop(channel, None)
            return
        self._broker.serve(channel)
        self._write_batch.request_turn()
