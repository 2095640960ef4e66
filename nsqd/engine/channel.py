"""A channel: its pending messages, the consumers that share it, and what is done to it as a whole."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, cast

from nsqclient.wire.names import is_ephemeral
from nsqd.engine.answered import Answered
from nsqd.engine.backlog import UNLIMITED
from nsqd.engine.clock import Wall
from nsqd.engine.credit import Credit, Sink
from nsqd.engine.dead_letter_queue import RETURNED, TIMED_OUT
from nsqd.engine.generations import BEFORE
from nsqd.engine.in_flight import NotInFlight
from nsqd.engine.topology import ELSEWHERE
from nsqd.log.gaps import EVERYTHING
from nsqd.log.ranges import Ranges, size_of, within
from nsqd.log.tail import MessageLog

NEVER: Final = 1 << 63


class TooManyConsumers(Exception):
    """The channel has as many consumers as the node allows."""


class Consumer(Credit):
    """A client's place on a channel."""

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


class Channel(Answered):
    """One copy of a topic's stream, shared by the consumers that subscribe to it."""

    __slots__ = (
        "absent",
        "ahead",
        "committed",
        "consumers",
        "deleted",
        "ephemeral",
        "generation",
        "host",
        "message_count",
        "name",
        "paused",
        "ready",
        "retry_ns",
        "served_bytes",
        "siblings",
        "stalls",
        "wake_ns",
        "zones",
    )

    def __init__(
        self, topic_name: str, name: str, log: MessageLog, memory_limit: int, wall: Wall | None = None
    ) -> None:
        """*memory_limit* bounds an ephemeral channel, and any channel whose log is only in memory."""
        self.ephemeral = is_ephemeral(name)
        super().__init__(topic_name, log, memory_limit if self.ephemeral or log.keep_all else UNLIMITED, wall)
        self.name = name
        self.paused = False
        self.deleted = False
        # Another channel of the same name, here or on another nsqd, has another number: see `generations`.
        self.generation = BEFORE
        # Finished elsewhere, but held back by the topic here: see `finishing`.
        self.ahead: Ranges = []
        # Messages that the log no longer had when the channel was made or set to a position: they were never
        # pending.
        self.absent: Ranges = []
        # All below this sequence was acknowledged at once, including what the topic held back.
        self.committed = 0
        self.consumers: dict[Consumer, None] = {}
        # Consumers with credit, in the order in which they are served.
        self.ready: OrderedDict[Consumer, None] = OrderedDict()
        # For a promoted copy: the channel of this nsqd whose consumers it shares.
        self.host: Channel | None = None
        # The channels that share these consumers, one for each promoted copy; mostly none.
        self.siblings: list[Channel] = []
        # Bytes that were delivered in turn with siblings: see `nsqd.server.in_turn`.
        self.served_bytes = 0
        self.message_count = 0
        # Delivered messages while consumption is topology-aware: same zone, same region, elsewhere.
        self.zones = [0, 0, 0]
        # When to try again to read messages that could not be read, and how often that has failed in a row.
        self.retry_ns = 0
        self.stalls = 0
        # When the timer looks at this channel next.
        self.wake_ns = NEVER

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
        """Remove a consumer; its messages in flight wait again at once, as it cannot answer them any more."""
        if consumer not in self.consumers:
            return
        del self.consumers[consumer]
        self.ready.pop(consumer, None)
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
        """Let the channel of a promoted copy give its messages to the consumers of this one."""
        sibling.host = self
        sibling.consumers = self.consumers
        sibling.ready = self.ready
        sibling.latency = self.latency
        self.siblings.append(sibling)

    def part(self, sibling: "Channel") -> None:
        """Undo :meth:`share`; messages that *sibling* has in flight cannot be answered any more."""
        sibling.release_in_flight()
        sibling.host = None
        sibling.consumers = {}
        sibling.ready = OrderedDict()
        self.siblings.remove(sibling)

    def refresh(self, consumer: Consumer) -> bool:
        """Add the consumer to those that are ready, or remove it; True when it is ready and messages wait."""
        if consumer.rdy > consumer.in_flight and not consumer.blocked:
            if consumer not in self.ready:
                self.ready[consumer] = None
            if self.siblings:
                return self.depth > 0 or any(one.depth for one in self.siblings)
            return self.depth > 0
        self.ready.pop(consumer, None)
        return False

    def next_ready(self) -> Consumer | None:
        """Remove the consumer to be served next from `ready`; None when all are busy or nothing waits."""
        ready = self.ready
        if self.paused or not (self.depth or self.siblings):
            return None
        while ready:
            consumer, _ = ready.popitem(last=False)
            # Its credit, inlined: that saves a call where this is not compiled.
            if consumer.rdy > consumer.in_flight and not consumer.blocked:
                return consumer
        return None

    def next_nearest(self) -> Consumer | None:
        """Like :meth:`next_ready`, but takes the nearest consumer; equally near ones take turns."""
        if self.paused or not (self.depth or self.siblings):
            return None
        usable = [one for one in self.ready if one.credit > 0]
        if not usable:
            return self.next_ready()  # which clears `ready`
        nearest = min(usable, key=lambda one: one.nearness)
        del self.ready[nearest]
        return nearest

    # --- messages ---

    def room(self) -> int:
        # Even with a limit of 0, a message can be handed to a consumer that is waiting for it.
        return self.limit - self.depth + sum(max(0, consumer.credit) for consumer in self.ready)

    def count(self) -> int:
        return self.depth + len(self.deferred) + self.in_flight.count + self.dead_letter_queue.count

    def expire(self, now_ns: int) -> None:
        """Let messages that were not answered in time, and deferred ones that are due, wait again."""
        self.changed = True
        for consumer, ranges in self.in_flight.expired(now_ns):
            count = size_of(ranges)
            self.timeout_count += count
            consumer.in_flight -= count
            self._came_back(ranges, cast("Consumer", consumer), TIMED_OUT, now_ns)
            self.refresh(cast("Consumer", consumer))
        released = self.release_due(now_ns)
        if released is not None and released < self.expired_below:
            self.expiry_ns = 0

    def empty(self) -> None:
        """Drop everything: waiting, deferred and in flight."""
        self.changed = True
        self.clear()
        self.dead_letter_queue.clear()
        self.release_in_flight()

    def release_in_flight(self) -> None:
        """Take everything of this log out of flight; the caller decides what becomes of it."""
        for run in self.in_flight.take_all():
            self.taken_from(run.consumer, run.left)

    def commit(self, seq: int) -> None:
        """Acknowledge everything below *seq*, wherever it is; doing it twice changes nothing."""
        self.changed = True
        self.committed = max(self.committed, seq)
        self.absent = within(self.absent, seq, EVERYTHING)
        self.drop_below(seq)
        self.dead_letter_queue.drop_below(seq)
        for consumer in self.in_flight.remove_below(seq):
            self.taken_from(consumer)

    def taken_from(self, consumer: Credit, count: int = 1) -> None:
        """*count* messages that the consumer had in flight are gone: it may be sent as many others."""
        consumer.in_flight -= count
        # Every consumer of a channel is a `Consumer`; what is in flight knows only its credit.
        self.refresh(cast("Consumer", consumer))

    @property
    def acknowledged(self) -> int:
        """The sequence below which everything is acknowledged."""
        lowest = self.lowest()
        return self.log.next_seq if lowest is None else lowest

    def next_due_ns(self) -> int | None:
        """The earliest time at which :meth:`expire` has something to do."""
        due, deferred = self.in_flight.next_deadline_ns(), self.deferred.next_due_ns()
        if due is None or deferred is None:
            return deferred if due is None else due
        return min(due, deferred)


__all__ = ["NEVER", "Channel", "NotInFlight", "TooManyConsumers"]
