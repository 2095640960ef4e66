"""A channel: what it owes its consumers, and the rules of delivering, finishing and requeueing."""

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, cast

from nsqclient.wire.names import is_ephemeral
from nsqd.engine.clock import Wall
from nsqd.engine.credit import Credit, Sink
from nsqd.engine.deaths import REQUEUED, RETURNED, TIMED_OUT, Death, Dying
from nsqd.engine.generations import BEFORE
from nsqd.engine.inflight import InFlight, NotInFlight, Run
from nsqd.engine.latency import Latency
from nsqd.engine.owed import SHORT, UNLIMITED, Owed, Scattered, Span, together
from nsqd.engine.settings import NOTHING, Settings
from nsqd.engine.topology import ELSEWHERE
from nsqd.log.frames import Block, Piece, published_ns, with_attempts_each
from nsqd.log.gaps import CannotRead, Gap
from nsqd.log.headers import frames_for
from nsqd.log.ids import MessageIds
from nsqd.log.ranges import Ranges, size_of
from nsqd.log.tail import MessageLog

# What one consumer is sent at most in one go, so that large messages with a high RDY do not fill memory.
TAKE_BYTES: Final = 128 << 10
NEVER: Final = 1 << 63
# So many messages are put in the order of the file at once: a millisecond's work.
_TOGETHER: Final = 4096


class TooManyConsumers(Exception):
    """The channel has as many consumers as the node allows."""


class Consumer(Credit):
    """A client's place on a channel."""

    __slots__ = ("channel", "client")

    def __init__(
        self,
        sink: Sink,
        msg_timeout_ns: int,
        keep: Callable[[], bool] | None = None,
        nearness: int = ELSEWHERE,
        *,
        extended: bool = False,
    ) -> None:
        """Takes what `Credit` does."""
        super().__init__(sink, msg_timeout_ns, keep, nearness, extended=extended)
        # None before it is subscribed, and when the channel was deleted.
        self.channel: Channel | None = None
        # As dead letters name it.
        self.client = ""


class Channel(Owed):
    """One copy of a topic's stream, shared by the consumers that subscribe to it."""

    __slots__ = (
        "_drawn",
        "ahead",
        "changed",
        "committed",
        "consumers",
        "dead_count",
        "deleted",
        "delivered_count",
        "dying",
        "ephemeral",
        "expiry_ns",
        "generation",
        "host",
        "ids",
        "in_flight",
        "latency",
        "log",
        "lost_count",
        "message_count",
        "name",
        "paused",
        "ready",
        "requeue_count",
        "retry_ns",
        "returned_count",
        "served_bytes",
        "settings",
        "siblings",
        "stalled",
        "stalls",
        "timeout_count",
        "topic_name",
        "wake_ns",
        "wall",
        "zones",
    )

    def __init__(
        self, topic_name: str, name: str, log: MessageLog, memory_limit: int, wall: Wall | None = None
    ) -> None:
        """*memory_limit* bounds an ephemeral channel, and any channel whose log is only in memory."""
        self.ephemeral = is_ephemeral(name)
        super().__init__(memory_limit if self.ephemeral or log.keep_all else UNLIMITED)
        self.topic_name = topic_name
        self.name = name
        self.log = log
        self.wall = wall or Wall()
        # What policies say of this channel; its topic keeps it up to date.
        self.settings: Settings = NOTHING
        self.paused = False
        # What is owed changed since the last checkpoint; publishing is no change, the log tells of it.
        self.changed = True
        self.deleted = False
        # Another one of the same name, here or on another nsqd, has another number: see `generations`.
        self.generation = BEFORE
        # Finished elsewhere, and held back by the topic here: see `finishing`.
        self.ahead: Ranges = []
        # The highest sequence that was acknowledged in one go; what the topic held back counts as well.
        self.committed = 0
        # The message that was drawn for a sampled consumer and could not be read yet.
        self._drawn: int | None = None
        self.in_flight = InFlight()
        self.consumers: dict[Consumer, None] = {}
        # Consumers with credit, in the order in which they are served.
        self.ready: deque[Consumer] = deque()
        # Of a log that is carried: the channel of this nsqd whose consumers it shares, and what ids it has.
        self.host: Channel | None = None
        self.ids: MessageIds | None = None
        # The channels that share these consumers, one for each log that is carried; mostly none.
        self.siblings: list[Channel] = []
        # What was delivered in turn with siblings: see `nsqd.server.delivery`.
        self.served_bytes = 0
        self.message_count = 0
        self.delivered_count = 0
        # Of the delivered ones, while consumption is topology-aware: same zone, same region, elsewhere.
        self.zones = [0, 0, 0]
        self.requeue_count = 0
        # Given back because their consumer left; the original has them time out.
        self.returned_count = 0
        self.timeout_count = 0
        # Messages that were owed but are no longer in the log: a damaged file, a cut tail.
        self.lost_count = 0
        # What is on its way to the dead letters, and how many have gone there.
        self.dying = Dying()
        self.dead_count = 0
        # When the first of what waits expires; too early rather than too late.
        self.expiry_ns = 0
        # Why what waits cannot be read just now, and when to try again; nothing is delivered until then.
        self.stalled = ""
        self.retry_ns = 0
        # How often that happened in a row.
        self.stalls = 0
        # When the timer looks at this channel next.
        self.wake_ns = NEVER
        # Set while end-to-end latency is measured.
        self.latency: Latency | None = None

    def __repr__(self) -> str:
        return f"<Channel {self.topic_name}:{self.name} depth {self.depth} in flight {self.in_flight.count}>"

    # --- consumers ---

    def subscribe(self, consumer: Consumer, max_consumers: int) -> None:
        """Add a consumer; 0 means any number may join. Raises TooManyConsumers."""
        if max_consumers and len(self.consumers) >= max_consumers:
            raise TooManyConsumers(
                f"consumers for {self.topic_name}:{self.name} exceeds limit of {max_consumers}"
            )
        self.consumers[consumer] = None
        consumer.channel = self

    def unsubscribe(self, consumer: Consumer) -> None:
        """Remove a consumer; what it had in flight waits again at once, for it can no longer be answered."""
        if consumer not in self.consumers:
            return
        del self.consumers[consumer]
        consumer.rdy = 0
        self._take_back(consumer)
        for sibling in self.siblings:
            sibling._take_back(consumer)
        consumer.in_flight = 0

    def _take_back(self, consumer: Consumer) -> None:
        ranges = self.in_flight.of_consumer(consumer)
        self.returned_count += size_of(ranges)
        self._came_back(ranges, consumer, RETURNED)

    def share(self, sibling: "Channel") -> None:
        """Have the channel of a carried log give its messages to the consumers of this one."""
        sibling.host = self
        sibling.consumers = self.consumers
        sibling.ready = self.ready
        sibling.latency = self.latency
        self.siblings.append(sibling)

    def part(self, sibling: "Channel") -> None:
        """Have it do so no longer; what it has in flight cannot be answered any more."""
        sibling.release_in_flight()
        sibling.host = None
        sibling.consumers = {}
        sibling.ready = deque()
        self.siblings.remove(sibling)

    def refresh(self, consumer: Consumer) -> bool:
        """Line the consumer up if it can take messages; True when it can and some wait."""
        if consumer.rdy > consumer.in_flight and not consumer.blocked:
            if not consumer.queued:
                consumer.queued = True
                self.ready.append(consumer)
            return self.depth > 0 or (bool(self.siblings) and any(one.depth for one in self.siblings))
        return False

    def next_ready(self) -> Consumer | None:
        """The consumer to be served next, taken out of the line; None when all are busy or nothing waits."""
        ready = self.ready
        if self.paused or not (self.depth or self.siblings):
            return None
        while ready:
            consumer = ready.popleft()
            consumer.queued = False
            if consumer.credit > 0 and consumer in self.consumers:
                return consumer
        return None

    def next_nearest(self) -> Consumer | None:
        """Like :meth:`next_ready`, but the nearest of them; equally near ones take turns."""
        if self.paused or not (self.depth or self.siblings):
            return None
        usable = [one for one in self.ready if one.credit > 0 and one in self.consumers]
        if not usable:
            return self.next_ready()  # which clears the line
        nearest = min(usable, key=lambda one: one.nearness)
        self.ready.remove(nearest)
        nearest.queued = False
        return nearest

    # --- messages ---

    def room(self) -> int:
        # With no memory a message can still be handed to a consumer that is waiting for it.
        return self.limit - self.depth + sum(max(0, consumer.credit) for consumer in self.ready)

    def count(self) -> int:
        return self.depth + len(self.deferred) + self.in_flight.count + self.dying.count

    def take(self, consumer: Consumer, limit: int, now_ns: int) -> list[Piece]:
        """Put up to *limit* waiting messages in flight to *consumer*; returns their frames in pieces."""
        pieces: list[Piece] = []
        room = TAKE_BYTES
        deadline_ns = now_ns + consumer.msg_timeout_ns
        extended = consumer.extended
        run_start = run_end = 0
        published = None if self.latency is None else array("q")
        if len(self.pending) > 1:
            self._gather()
        while limit > 0 and room > 0 and self.pending:
            span = self.pending[0]
            if isinstance(span, Scattered):
                count, piece = self._take_scattered(span, consumer, limit, room, now_ns)
                if count:
                    pieces.append(piece)
                    limit -= count
                    room -= len(piece)
                else:
                    self._single_out(span)
                continue
            start = span.start
            try:
                block = self.log.read(start, min(span.end, start + limit))
            except CannotRead as failure:
                self.stalled = str(failure) or "cannot read"
                break
            if not isinstance(block, Block):
                self._skip(span, span.end if block is None else min(block.end, span.end), block)
                continue
            end = block.fitting(start, min(span.end, block.next, start + limit), room)
            if span.again:
                seqs = range(start, end)
                piece = self._delivered_again(
                    seqs, [frames_for(block, seq, seq + 1, extended=extended) for seq in seqs]
                )
            else:
                piece = frames_for(block, start, end, extended=extended)
            pieces.append(piece)
            room -= len(piece)
            limit -= end - start
            if start == run_end:
                run_end = end
            else:
                if run_end:
                    self.in_flight.add(run_start, run_end, consumer, now_ns, deadline_ns, published)
                    published = None if published is None else array("q")
                run_start, run_end = start, end
            if published is not None:
                published.extend([block.timestamp_ns(seq) for seq in range(start, end)])
            self._delivered(consumer, end - start)
            span.start = end
            if end == span.end:
                self.pending.popleft()
        if run_end:
            self.in_flight.add(run_start, run_end, consumer, now_ns, deadline_ns, published)
        return pieces

    def _take_scattered(
        self, span: Scattered, consumer: Consumer, limit: int, room: int, now_ns: int
    ) -> tuple[int, Piece]:
        """Put the first messages of *span* in flight: how many, and their frames; 0 where one is missing."""
        seqs = span.seqs[span.at : span.at + limit]
        frames = self.log.frames(seqs, room, extended=consumer.extended)
        if not frames:
            return 0, b""
        del seqs[len(frames) :]
        published = None if self.latency is None else array("q", [published_ns(frame) for frame in frames])
        deadline_ns = now_ns + consumer.msg_timeout_ns
        self.in_flight.add_scattered(seqs, consumer, now_ns, deadline_ns, published)
        self._delivered(consumer, len(seqs))
        span.at += len(seqs)
        if not len(span):
            self.pending.popleft()
        return len(seqs), self._delivered_again(seqs, frames) if span.again else b"".join(frames)

    def _delivered_again(self, seqs: Sequence[int], frames: list[Piece]) -> Piece:
        """The frames of these messages, each with its number of attempts."""
        tried = self.attempts
        counts = [tried.get(seq, 1) + 1 for seq in seqs]
        tried.update(zip(seqs, counts, strict=True))
        return with_attempts_each(frames, counts)

    def _delivered(self, consumer: Consumer, count: int) -> None:
        self.depth -= count
        consumer.in_flight += count
        consumer.message_count += count
        self.delivered_count += count

    def _gather(self) -> None:
        """Have the short spans that wait first, if they lie on disk, wait together in the order of the file.

        What was requeued or timed out one by one lies anywhere: so each place is gone to once.
        """
        pending = self.pending
        resident_from = self.log.resident_from
        # By whether they were delivered before; what waits first goes on being first.
        found: dict[bool, list[int]] = {}
        count = 0
        while pending and count < _TOGETHER:
            span = pending[0]
            if isinstance(span, Scattered) or len(span) > SHORT or span.start >= resident_from:
                break
            found.setdefault(span.again, []).extend(range(span.start, span.end))
            count += len(span)
            pending.popleft()
        for again, seqs in reversed(found.items()):
            pending.appendleft(together(sorted(seqs), again=again))

    def _single_out(self, span: Scattered) -> None:
        """Let the first message of the first *span* wait before it by itself."""
        seq = span.seqs[span.at]
        span.at += 1
        if not len(span):
            self.pending.popleft()
        self.pending.appendleft(Span(seq, seq + 1, span.again))

    def take_sampled(self, consumer: Consumer, limit: int, now_ns: int) -> list[Piece]:
        """Like :meth:`take` for a consumer with a sample rate: what is not drawn is gone for this channel."""
        keep = consumer.keep
        pieces: list[Piece] = []
        room = TAKE_BYTES
        while limit > 0 and room > 0 and self.depth:
            span = self.pending[0]
            if isinstance(span, Scattered):
                self._single_out(span)
            elif keep is None or span.start == self._drawn or keep():
                taken = self.take(consumer, 1, now_ns)
                pieces.extend(taken)
                if self.stalled:
                    # Drawn once: it is delivered when it can be read.
                    first = self.pending[0]
                    self._drawn = first.start if isinstance(first, Span) else None
                    break
                room -= sum(map(len, taken))
                limit -= 1
            else:
                self.changed = True
                self.forget_attempts(span.start, span.start + 1)
                self.finished.add_one(span.start)
                span.start += 1
                self.depth -= 1
                if span.start == span.end:
                    self.pending.popleft()
        return pieces

    def finish(self, seq: int, consumer: Consumer, now_ns: int) -> None:
        """The consumer is done with a message. Raises NotInFlight."""
        self.changed = True
        run = self.in_flight.remove(seq, consumer)
        consumer.in_flight -= 1
        consumer.finish_count += 1
        self.finished.add_one(seq)
        if self.attempts:
            self.attempts.pop(seq, None)
        if self.latency is not None:
            self._measure(run, seq, seq + 1, now_ns)

    def finish_scattered(
        self, seqs: list[int], consumer: Consumer, now_ns: int
    ) -> list[tuple[int, NotInFlight]]:
        """Finish messages in no particular order; returns the place and reason of those that could not be."""
        if self.latency is not None:
            return self._finish_each(seqs, consumer, now_ns)
        self.changed = True
        failed = self.in_flight.remove_scattered(seqs, consumer)
        count = len(seqs) - len(failed)
        consumer.in_flight -= count
        consumer.finish_count += count
        if failed:
            places = {place for place, _ in failed}
            seqs = [seq for place, seq in enumerate(seqs) if place not in places]
        self.finished.add_all(seqs)
        if self.attempts:
            for seq in seqs:
                self.attempts.pop(seq, None)
        return failed

    def _finish_each(self, seqs: list[int], consumer: Consumer, now_ns: int) -> list[tuple[int, NotInFlight]]:
        failed: list[tuple[int, NotInFlight]] = []
        for place, seq in enumerate(seqs):
            try:
                self.finish(seq, consumer, now_ns)
            except NotInFlight as why:
                failed.append((place, why))
        return failed

    def finish_head(self, seq: int, count: int, consumer: Consumer, now_ns: int) -> None:
        """Finish *count* messages from *seq* on that ``in_flight.unbroken`` has counted."""
        self.changed = True
        run = self.in_flight.remove_head(seq, count)
        consumer.in_flight -= count
        consumer.finish_count += count
        self.finished.add(seq, seq + count)
        self.forget_attempts(seq, seq + count)
        if self.latency is not None:
            self._measure(run, seq, seq + count, now_ns)

    def requeue(self, seq: int, consumer: Consumer, delay_ns: int, now_ns: int) -> int:
        """Put an in-flight message back; with delay 0 behind what already waits. Raises NotInFlight.

        Returns when it is due, 0 if it is at once: a policy may delay it, or have it go to the dead letters.
        """
        self.in_flight.remove(seq, consumer)
        self.changed = True
        consumer.in_flight -= 1
        consumer.requeue_count += 1
        self.requeue_count += 1
        if not delay_ns or self.settings.max_attempts:
            return self._came_back([(seq, seq + 1)], consumer, REQUEUED, now_ns, delay_ns)
        self._tried(seq, seq + 1)
        self.put_off(seq, seq + 1, now_ns + delay_ns)
        return now_ns + delay_ns

    def touch(self, seq: int, consumer: Consumer, max_msg_timeout_ns: int, now_ns: int) -> None:
        """Start the message's time-out again. Raises NotInFlight."""
        run = self.in_flight.find(seq, consumer)
        # Not past max_msg_timeout from delivery, or a stuck handler keeps a message forever.
        deadline_ns = min(now_ns + consumer.msg_timeout_ns, run.delivered_ns + max_msg_timeout_ns)
        self.in_flight.touch(seq, consumer, deadline_ns)

    def expire(self, now_ns: int) -> None:
        """Messages not answered in time and deferred ones that are due wait again."""
        self.changed = True
        for consumer, ranges in self.in_flight.expired(now_ns):
            count = size_of(ranges)
            self.timeout_count += count
            consumer.in_flight -= count
            self._came_back(ranges, cast("Consumer", consumer), TIMED_OUT, now_ns)
            self.refresh(cast("Consumer", consumer))
        if self.release_due(now_ns):
            # It may have been published long ago.
            self.expiry_ns = 0

    def finish_dead(self, death: Death) -> None:
        """Messages are in the dead letters: they are owed no longer."""
        self.changed = True
        self.dead_count += death.end - death.start
        self.forget_attempts(death.start, death.end)
        self.finished.add(death.start, death.end)

    def empty(self) -> None:
        """Drop everything: waiting, deferred and in flight."""
        self.changed = True
        self.clear()
        self.dying.clear()
        self.release_in_flight()

    def release_in_flight(self) -> None:
        """Nothing of this log is in flight any more; it is the caller's to say what becomes of it."""
        for run in self.in_flight.take_all():
            consumer = cast("Consumer", run.consumer)
            consumer.in_flight -= run.left
            self.refresh(consumer)

    def commit(self, seq: int) -> None:
        """Acknowledge everything below *seq*, wherever it is; doing it twice changes nothing."""
        self.changed = True
        self.committed = max(self.committed, seq)
        self.drop_below(seq)
        self.dying.drop_below(seq)
        for consumer in self.in_flight.remove_below(seq):
            consumer.in_flight -= 1
            self.refresh(cast("Consumer", consumer))

    @property
    def acknowledged(self) -> int:
        """Everything below this sequence is acknowledged."""
        lowest = self.lowest()
        return self.log.next_seq if lowest is None else lowest

    def next_due_ns(self) -> int | None:
        """The earliest time at which :meth:`expire` has something to do."""
        due, deferred = self.in_flight.next_deadline_ns(), self.deferred.next_due_ns()
        if due is None or deferred is None:
            return deferred if due is None else due
        return min(due, deferred)

    def _measure(self, run: Run, start: int, end: int, now_ns: int) -> None:
        """Note how long finished messages of *run* took since they were published."""
        published, latency = run.published, self.latency
        if published is not None and latency is not None:
            now_wall_ns = now_ns + self.wall.offset_ns
            place = run.place(start)
            for moment_ns in published[place : place + end - start]:
                latency.add(now_wall_ns - moment_ns, now_ns)

    def _came_back(
        self, ranges: Ranges, consumer: Consumer, why: str, now_ns: int = 0, delay_ns: int = 0
    ) -> int:
        """Sorted messages were not finished; returns when the last of them is due, 0 if it waits or dies.

        Those that lie apart wait in the order of the log.
        """
        self.changed = True
        apart: list[int] = []
        due_ns = 0
        for start, end in ranges:
            self._tried(start, end)
            if self.settings is not NOTHING:
                due_ns = self._put_aside(start, end, consumer, why, now_ns, delay_ns)
            elif end - start > SHORT or len(ranges) == 1:
                self.put_back(start, end)
            else:
                apart.extend(range(start, end))
        if apart:
            self.wait_scattered(apart, again=True)
        return due_ns

    def _tried(self, start: int, end: int) -> None:
        """Messages were delivered and not finished."""
        attempts, journal = self.attempts, self.journal
        if end - start > 1 and attempts.keys().isdisjoint(range(start, end)):
            attempts.update(dict.fromkeys(range(start, end), 1))
            if journal is not None:
                journal.tried(start, end, 1)
            return
        for seq in range(start, end):
            count = attempts.setdefault(seq, 1)
            if journal is not None:
                journal.tried(seq, seq + 1, count)

    def _put_aside(
        self, start: int, end: int, consumer: Consumer, why: str, now_ns: int, delay_ns: int
    ) -> int:
        """Do with messages that came back what the policy says."""
        settings = self.settings
        most = settings.max_attempts if settings.dead_letter_topic != self.topic_name else 0
        if why == RETURNED:
            # Its consumer may never have looked at it. One that ends its consumers gets out of the way too.
            most *= 2
        self.expiry_ns = due_ns = 0
        for seq in range(start, end):
            attempts = self.attempts[seq]
            if most and attempts >= most:
                self.dying.add(seq, seq + 1, why, consumer.client)
                continue
            wait_ns = delay_ns or (settings.retry_after_ns(attempts) if why != RETURNED else 0)
            due_ns = now_ns + wait_ns if wait_ns else 0
            if due_ns:
                self.put_off(seq, seq + 1, due_ns)
            else:
                self.put_back(seq, seq + 1)
        return due_ns

    def _skip(self, span: Span, end: int, gap: Gap | None) -> None:
        """There is nothing to deliver of the first *span* up to *end*, nor will there ever be."""
        count = end - span.start
        self.changed = True
        self.forget_attempts(span.start, end)
        self.finished.add(span.start, end)
        if gap is None or gap.is_loss:
            if self.ids is None:
                # What a copy lacks is on the nsqd whose log it is, or is lost there.
                self.lost_count += count
            # Nobody has finished these: that they are skipped here is no reason for others to.
            self.log.had.take_out(span.start, end)
        self.depth -= count
        span.start = end
        if span.start >= span.end:
            self.pending.popleft()


__all__ = ["NEVER", "Channel", "NotInFlight", "TooManyConsumers"]
