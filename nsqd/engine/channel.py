"""A channel: its backlog, its consumers, and the answers to its messages."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, cast

from nsqclient.wire.names import is_ephemeral
from nsqd.engine.backlog import UNLIMITED, Backlog
from nsqd.engine.clock import Wall
from nsqd.engine.credit import ELSEWHERE, Credit, Sink
from nsqd.engine.dead_letter_queue import EXPIRED, REQUEUED, RETURNED, TIMED_OUT, DeadLetterMove
from nsqd.engine.in_flight import NotInFlight
from nsqd.engine.latency import Latency
from nsqd.engine.settings import NOTHING, Settings
from nsqd.log.gaps import EVERYTHING
from nsqd.log.ids import MessageIds
from nsqd.log.ranges import Ranges, merged, size_of, within, without
from nsqd.log.tail import MessageLog

NEVER: Final = 1 << 63


class TooManyConsumers(Exception):
    """The channel has as many consumers as the node allows."""


class Consumer(Credit):
    """A subscription of a client to a channel."""

    __slots__ = ("channel",)

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
        # None before it is subscribed, and after the channel was deleted.
        self.channel: Channel | None = None


class Channel:
    """One copy of a topic's stream, shared by the consumers that subscribe to it."""

    __slots__ = (
        "absent",
        "ahead",
        "backlog",
        "changed",
        "committed",
        "consumers",
        "dead_count",
        "deleted",
        "delivered_count",
        "dropped_count",
        "ephemeral",
        "expired_below",
        "expired_count",
        "expiry_ns",
        "generation",
        "host",
        "ids",
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
        "sampled",
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
        self.topic_name = topic_name
        self.name = name
        self.ephemeral = is_ephemeral(name)
        self.log = log
        self.wall = wall or Wall()
        self.consumers: dict[Consumer, None] = {}
        # Consumers with credit, in the order in which they are served.
        self.ready: OrderedDict[Consumer, None] = OrderedDict()
        in_memory = self.ephemeral or log.source is None
        self.backlog = Backlog(memory_limit if in_memory else UNLIMITED, self.ready)
        self.paused = False
        self.deleted = False
        # The policies for this channel; its topic updates them.
        self.settings: Settings = NOTHING
        # Another channel of the same name, here or on another nsqd, has another number: see `numbering`.
        self.generation = 0
        # Finished elsewhere, but still in the topic's backlog here: see `merge_finished`.
        self.ahead: Ranges = []
        # Messages that the log no longer had when the channel was made or set to a position: they were never
        # pending.
        self.absent: Ranges = []
        # All below this sequence was acknowledged together, including the topic's backlog.
        self.committed = 0
        # Unfinished messages changed since the last checkpoint; publishing does not count, because it is in
        # the log.
        self.changed = True
        # For a promoted copy: the channel of this nsqd whose consumers it shares, and the ids of its
        # messages.
        self.host: Channel | None = None
        self.ids: MessageIds | None = None
        # The channels that share these consumers, one for each promoted copy; mostly none.
        self.siblings: list[Channel] = []
        # Bytes that were delivered in turn with siblings: see `nsqd.server.in_turn`.
        self.served_bytes = 0
        self.message_count = 0
        self.delivered_count = 0
        self.requeue_count = 0
        # Messages requeued because their consumer left; in the original they time out.
        self.returned_count = 0
        self.timeout_count = 0
        # Messages that were dropped by a policy's bound, and by its time to live.
        self.dropped_count = 0
        self.expired_count = 0
        # Messages that have gone to the dead letters.
        self.dead_count = 0
        # Messages that were unfinished but are no longer in the log: a damaged file, a cut tail.
        self.lost_count = 0
        # Delivered messages while consumption is topology-aware: same zone, same region, elsewhere.
        self.zones = [0, 0, 0]
        # Set while end-to-end latency is measured.
        self.latency: Latency | None = None
        # When the first pending message expires; it may be too early, never too late.
        self.expiry_ns = 0
        # All messages below this one had expired at the last check of the pending ones.
        self.expired_below = 0
        # Why pending messages cannot be read now; until they can be read, nothing is delivered.
        self.stalled = ""
        # When to try to read them again, and how often that has failed in a row.
        self.retry_ns = 0
        self.stalls = 0
        # The message that was drawn for a sampled consumer and could not be read yet.
        self.sampled: int | None = None
        # When the timer checks this channel next.
        self.wake_ns = NEVER

    def __repr__(self) -> str:
        backlog = self.backlog
        return (
            f"<Channel {self.topic_name}:{self.name} pending {backlog.pending.count} "
            f"in flight {backlog.in_flight.count}>"
        )

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
        """Remove a consumer; its messages in flight become pending, as it cannot answer them any more."""
        if consumer not in self.consumers:
            return
        del self.consumers[consumer]
        self.ready.pop(consumer, None)
        consumer.rdy = 0
        for one in (self, *self.siblings):
            ranges = one.backlog.in_flight.of_consumer(consumer)
            one.returned_count += size_of(ranges)
            one._requeue_ranges(ranges, consumer, RETURNED)

    def share(self, sibling: "Channel") -> None:
        """Let the channel of a promoted copy deliver its messages to the consumers of this one."""
        sibling.host = self
        sibling.consumers = self.consumers
        sibling.ready = self.ready
        sibling.latency = self.latency
        self.siblings.append(sibling)

    def unshare(self, sibling: "Channel") -> None:
        """Undo :meth:`share`; messages that *sibling* has in flight cannot be answered any more."""
        for consumer, _ in sibling.backlog.in_flight.remove([(0, EVERYTHING)]):
            self.refresh(cast("Consumer", consumer))
        sibling.host = None
        sibling.consumers = {}
        sibling.ready = OrderedDict()
        self.siblings.remove(sibling)

    def refresh(self, consumer: Consumer) -> bool:
        """Add the consumer to those that are ready, or remove it; True when it is ready for pending ones."""
        if consumer.rdy > consumer.in_flight and not consumer.blocked:
            if consumer not in self.ready:
                self.ready[consumer] = None
            if self.siblings:
                return any(one.backlog.pending.count for one in (self, *self.siblings))
            return self.backlog.pending.count > 0
        self.ready.pop(consumer, None)
        return False

    def next_ready(self) -> Consumer | None:
        """Remove the consumer to be served next from `ready`; None if there is none or nothing is pending."""
        ready = self.ready
        if self.paused or not (self.backlog.pending.count or self.siblings):
            return None
        while ready:
            consumer, _ = ready.popitem(last=False)
            # Its credit, inlined: that saves a call where this is not compiled.
            if consumer.rdy > consumer.in_flight and not consumer.blocked:
                return consumer
        return None

    def next_nearest(self) -> Consumer | None:
        """Like :meth:`next_ready`, but takes the nearest consumer; equally near ones take turns."""
        if self.paused or not (self.backlog.pending.count or self.siblings):
            return None
        usable = [one for one in self.ready if one.credit > 0]
        if not usable:
            return self.next_ready()  # which clears `ready`
        nearest = min(usable, key=lambda one: one.nearness)
        del self.ready[nearest]
        return nearest

    # --- answers ---

    def finish(self, seqs: Sequence[int], consumer: Credit, now_ns: int) -> list[tuple[int, NotInFlight]]:
        """Finish messages that *consumer* has answered, in any order.

        A range is the head of one unbroken run in flight. Returns the index and reason of those that are not
        in flight to it.
        """
        self.changed = True
        backlog = self.backlog
        if self.latency is not None:
            self._measure(seqs, consumer, self.latency, now_ns)
        failed: list[tuple[int, NotInFlight]] = []
        if isinstance(seqs, range):
            backlog.in_flight.take_head(seqs.start, len(seqs))
            backlog.finished.add(seqs.start, seqs.stop)
        else:
            failed = backlog.in_flight.take_each(seqs, consumer)
            if failed:
                indexes = {index for index, _ in failed}
                seqs = [seq for index, seq in enumerate(seqs) if index not in indexes]
            if len(seqs) == 1:
                backlog.finished.add_one(seqs[0])
            else:
                backlog.finished.add_all(seqs)
        consumer.finish_count += len(seqs)
        attempts = backlog.attempts
        if attempts:
            for seq in seqs:
                attempts.pop(seq, None)
        return failed

    def requeue(self, seq: int, consumer: Credit, delay_ns: int, now_ns: int) -> int:
        """Put an in-flight message back; with delay 0 behind the pending ones. Raises NotInFlight.

        Returns when it is due, 0 if it is pending: a policy may delay it or send it to the dead letters.
        """
        self.backlog.in_flight.take(seq, consumer)
        consumer.requeue_count += 1
        self.requeue_count += 1
        return self._requeue_ranges([(seq, seq + 1)], consumer, REQUEUED, now_ns, delay_ns)

    def touch(self, seq: int, consumer: Credit, max_msg_timeout_ns: int, now_ns: int) -> None:
        """Start the message's time-out again. Raises NotInFlight."""
        in_flight = self.backlog.in_flight
        run = in_flight.find(seq, consumer)
        # No later than max_msg_timeout after delivery, or a stuck handler keeps a message forever.
        deadline_ns = min(now_ns + consumer.msg_timeout_ns, run.delivered_ns + max_msg_timeout_ns)
        in_flight.touch(seq, consumer, deadline_ns)

    def topic_backlog_ranges(self, backlog: Backlog) -> Ranges:
        """The messages of the topic's *backlog* that move to this channel, sorted and merged."""
        # Acknowledged messages do not move: see `Topic.pump`.
        parts = without([(max(self.backlog.end, self.committed), backlog.end)], self.ahead)
        return [found for start, end in parts for found in backlog.unfinished(start, end)]

    def expire(self, now_ns: int) -> None:
        """Messages that were not answered in time, and deferred ones that are due, become pending."""
        self.changed = True
        for consumer, ranges in self.backlog.in_flight.expired(now_ns):
            self.timeout_count += size_of(ranges)
            self._requeue_ranges(ranges, consumer, TIMED_OUT, now_ns)
            self.refresh(cast("Consumer", consumer))
        released = self.backlog.release_due(now_ns)
        if released is not None and released < self.expired_below:
            self.expiry_ns = 0

    def next_due_ns(self) -> int | None:
        """The earliest time at which :meth:`expire` has something to do."""
        due, deferred = self.backlog.in_flight.next_deadline_ns(), self.backlog.deferred.next_due_ns()
        if due is None or deferred is None:
            return deferred if due is None else due
        return min(due, deferred)

    def _measure(self, seqs: Sequence[int], consumer: Credit, latency: Latency, now_ns: int) -> None:
        """Note how long messages that are about to be finished took since they were published."""
        now_wall_ns = self.wall.time_at(now_ns)
        count = len(seqs) if isinstance(seqs, range) else 1
        for seq in seqs[:1] if isinstance(seqs, range) else seqs:
            try:
                run = self.backlog.in_flight.find(seq, consumer)
            except NotInFlight:
                continue
            if run.published is not None:
                index = run.index(seq)
                for moment_ns in run.published[index : index + count]:
                    latency.add(now_wall_ns - moment_ns, now_ns)

    def _requeue_ranges(
        self, ranges: Ranges, consumer: Credit, why: str, now_ns: int = 0, delay_ns: int = 0
    ) -> int:
        """Put sorted messages back; returns when the last of them is due, 0 if it is pending or dead."""
        self.changed = True
        backlog = self.backlog
        for start, end in ranges:
            backlog.note_delivered(start, end)
        due_ns = 0
        if self.settings is not NOTHING:
            for start, end in ranges:
                for seq in range(start, end):
                    due_ns = self._follow_policy(seq, consumer, why, now_ns, delay_ns)
        elif delay_ns:
            due_ns = now_ns + delay_ns
            for start, end in ranges:
                backlog.defer(start, end, due_ns)
        elif ranges:
            backlog.enqueue(ranges, redelivered=True)
        return due_ns

    def _follow_policy(self, seq: int, consumer: Credit, why: str, now_ns: int, delay_ns: int) -> int:
        """Put a message back as the policy says; returns when it is due, 0 if it is not deferred."""
        settings, backlog = self.settings, self.backlog
        max_attempts = settings.max_attempts if settings.dead_letter_topic != self.topic_name else 0
        if why == RETURNED:
            # The consumer may not have handled the message, so twice as many attempts are allowed. A message
            # that ends its consumers still leaves the channel.
            max_attempts *= 2
        attempts = backlog.attempts[seq]
        if max_attempts and attempts >= max_attempts:
            backlog.dead_letter_queue.add(seq, seq + 1, why, consumer.client)
            return 0
        wait_ns = delay_ns or (settings.retry_after_ns(attempts) if why != RETURNED else 0)
        if wait_ns:
            backlog.defer(seq, seq + 1, now_ns + wait_ns)
            return now_ns + wait_ns
        if seq < self.expired_below and not within(backlog.suspended, seq, seq + 1):
            self.expire_ranges([(seq, seq + 1)])
        else:
            backlog.enqueue([(seq, seq + 1)], redelivered=True)
        return 0

    # --- without an answer ---

    def remove(self, ranges: Ranges) -> Ranges:
        """Finish messages in *ranges*, whatever their state is; returns those that were not finished.

        A consumer that has one of them in flight loses it: its answer then fails, as after a time-out.
        """
        removed, taken = self.backlog.remove(ranges)
        if removed:
            self.changed = True
        self.notify_removed(taken)
        return removed

    def notify_removed(self, taken: list[tuple[Credit, Ranges]]) -> None:
        """Consumers have lost messages that they had in flight: they may be sent others."""
        for consumer, _ in taken:
            # Every consumer of a channel is a `Consumer`; runs in flight know only its credit.
            self.refresh(cast("Consumer", consumer))

    def empty(self) -> None:
        """Finish everything."""
        self.changed = True
        self.remove([(0, self.backlog.end)])

    def commit(self, seq: int) -> None:
        """Acknowledge everything below *seq*, wherever it is; doing it twice changes nothing."""
        self.changed = True
        self.committed = max(self.committed, seq)
        self.absent = within(self.absent, seq, EVERYTHING)
        self.remove([(0, seq)])

    def merge_finished(self, ranges: Ranges, end: int) -> Ranges:
        """Finish *ranges* of a log that ends at *end*; returns those that were not known to be finished.

        Messages in the topic's backlog are remembered until the channel gets them. Doing it twice changes
        nothing.
        """
        news = self.remove(ranges)
        ahead = within(merged(ranges), self.backlog.end, end)
        known = merged([*self.ahead, *ahead])
        if known != self.ahead:
            self.ahead = known
            self.changed = True
            news = merged([*news, *ahead])
        return news

    def expire_ranges(self, ranges: Ranges) -> None:
        """Messages in no state have expired: they are dead letters, or finished."""
        self.changed = True
        settings, backlog = self.settings, self.backlog
        self.expired_count += size_of(ranges)
        if settings.dead_letter_topic and settings.dead_letter_topic != self.topic_name:
            for start, end in ranges:
                backlog.dead_letter_queue.add(start, end, EXPIRED)
        else:
            backlog.finish(ranges)

    def skip(self, start: int, end: int, *, lost: bool) -> None:
        """Finish messages that cannot be delivered, now or later."""
        self.changed = True
        if lost:
            if self.ids is None:
                # What a copy lacks is on the nsqd whose log it is, or was lost there.
                self.lost_count += end - start
            # No consumer has finished these, so other nsqd must not receive them as finished.
            self.log.stored_ranges.remove(start, end)
        self.backlog.finish([(start, end)])

    def finish_dead(self, move: DeadLetterMove) -> int:
        """Finish messages that are in the dead letters, and lost ones; returns how many were moved."""
        if not self.backlog.finish_dead(move):
            return 0
        self.changed = True
        count = move.end - move.start - move.lost
        self.dead_count += count
        if self.ids is None:
            # As in `skip`.
            self.lost_count += move.lost
        return count

    @property
    def acknowledged(self) -> int:
        """The sequence below which everything is acknowledged."""
        lowest = self.backlog.lowest()
        return self.log.next_seq if lowest is None else lowest


__all__ = ["NEVER", "Channel", "NotInFlight", "TooManyConsumers"]
