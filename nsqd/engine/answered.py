"""What becomes of delivered messages: they are answered, given back, timed out or given up."""

from nsqd.engine.backlog import UNLIMITED
from nsqd.engine.clock import Wall
from nsqd.engine.credit import Credit
from nsqd.engine.dead_letter_queue import EXPIRED, REQUEUED, RETURNED, DeadLetterMove, DeadLetterQueue
from nsqd.engine.delivering import Delivering
from nsqd.engine.in_flight import NotInFlight, Run
from nsqd.engine.pending_ranges import SHORT
from nsqd.engine.settings import NOTHING, Settings
from nsqd.log.ranges import Ranges, within
from nsqd.log.tail import MessageLog


class Answered(Delivering):
    """Owes messages, gives them to consumers, and is told what became of them."""

    __slots__ = (
        "dead_count",
        "dead_letter_queue",
        "expired_below",
        "expiry_ns",
        "requeue_count",
        "returned_count",
        "settings",
        "timeout_count",
        "topic_name",
    )

    def __init__(
        self, topic_name: str, log: MessageLog, limit: int = UNLIMITED, wall: Wall | None = None
    ) -> None:
        """Takes the arguments of `Delivering`, and the name of the topic."""
        super().__init__(log, limit, wall)
        self.topic_name = topic_name
        # What policies say of this channel; its topic keeps it up to date.
        self.settings: Settings = NOTHING
        self.requeue_count = 0
        # Messages given back because their consumer left; the original lets them time out.
        self.returned_count = 0
        self.timeout_count = 0
        # Messages on their way to the dead letters, and how many have gone there.
        self.dead_letter_queue = DeadLetterQueue()
        self.dead_count = 0
        # When the first waiting message expires; it may be too early, never too late.
        self.expiry_ns = 0
        # All messages below this one had expired when the waiting ones were looked at last.
        self.expired_below = 0

    def finish(self, seq: int, consumer: Credit, now_ns: int) -> None:
        """Finish a message that its consumer has answered. Raises NotInFlight."""
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
        self, seqs: list[int], consumer: Credit, now_ns: int
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

    def _finish_each(self, seqs: list[int], consumer: Credit, now_ns: int) -> list[tuple[int, NotInFlight]]:
        failed: list[tuple[int, NotInFlight]] = []
        for place, seq in enumerate(seqs):
            try:
                self.finish(seq, consumer, now_ns)
            except NotInFlight as why:
                failed.append((place, why))
        return failed

    def finish_head(self, seq: int, count: int, consumer: Credit, now_ns: int) -> None:
        """Finish *count* messages from *seq* on that ``in_flight.unbroken`` has counted."""
        self.changed = True
        run = self.in_flight.remove_head(seq, count)
        consumer.in_flight -= count
        consumer.finish_count += count
        self.finished.add(seq, seq + count)
        if self.attempts:
            self.forget_attempts(seq, seq + count)
        if self.latency is not None:
            self._measure(run, seq, seq + count, now_ns)

    def requeue(self, seq: int, consumer: Credit, delay_ns: int, now_ns: int) -> int:
        """Put an in-flight message back; with delay 0 behind what already waits. Raises NotInFlight.

        Returns when it is due, 0 if it is at once: a policy may delay it or send it to the dead letters.
        """
        self.in_flight.remove(seq, consumer)
        self.changed = True
        consumer.in_flight -= 1
        consumer.requeue_count += 1
        self.requeue_count += 1
        if not delay_ns or self.settings.max_attempts:
            return self._came_back([(seq, seq + 1)], consumer, REQUEUED, now_ns, delay_ns)
        self._tried(seq, seq + 1)
        self.defer(seq, seq + 1, now_ns + delay_ns)
        return now_ns + delay_ns

    def touch(self, seq: int, consumer: Credit, max_msg_timeout_ns: int, now_ns: int) -> None:
        """Start the message's time-out again. Raises NotInFlight."""
        run = self.in_flight.find(seq, consumer)
        # No later than max_msg_timeout after delivery, or a stuck handler keeps a message forever.
        deadline_ns = min(now_ns + consumer.msg_timeout_ns, run.delivered_ns + max_msg_timeout_ns)
        self.in_flight.touch(seq, consumer, deadline_ns)

    def give_up_expired(self, start: int, end: int) -> None:
        """Messages that neither wait nor are in flight have expired: they are dead letters, or finished."""
        settings = self.settings
        self.expired_count += end - start
        if settings.dead_letter_topic and settings.dead_letter_topic != self.topic_name:
            self.dead_letter_queue.add(start, end, EXPIRED)
        else:
            self.forget_attempts(start, end)
            self.finished.add(start, end)

    def finish_dead(self, move: DeadLetterMove) -> None:
        """Finish messages that are now in the dead letters, and those that are lost."""
        self.changed = True
        self.dead_count += move.end - move.start - move.lost
        if self.ids is None:
            # As in `_skip`: what a copy lacks is on the nsqd whose log it is, or was lost there.
            self.lost_count += move.lost
        self.forget_attempts(move.start, move.end)
        self.finished.add(move.start, move.end)

    def _measure(self, run: Run, start: int, end: int, now_ns: int) -> None:
        """Note how long finished messages of *run* took since they were published."""
        published, latency = run.published, self.latency
        if published is not None and latency is not None:
            now_wall_ns = self.wall.at(now_ns)
            place = run.place(start)
            for moment_ns in published[place : place + end - start]:
                latency.add(now_wall_ns - moment_ns, now_ns)

    def _came_back(
        self, ranges: Ranges, consumer: Credit, why: str, now_ns: int = 0, delay_ns: int = 0
    ) -> int:
        """Put sorted messages back; returns when the last of them is due, 0 if it waits or goes to the dead
        letters.

        Short ranges wait together, in the order of the log.
        """
        self.changed = True
        apart: list[int] = []
        due_ns = 0
        for start, end in ranges:
            self._tried(start, end)
            if self.settings is not NOTHING:
                due_ns = self._put_aside(start, end, consumer, why, now_ns, delay_ns)
            elif end - start > SHORT or len(ranges) == 1:
                self.enqueue_redelivered(start, end)
            else:
                apart.extend(range(start, end))
        if apart:
            self.enqueue_scattered(apart, redelivered=True)
        return due_ns

    def _tried(self, start: int, end: int) -> None:
        """Note that messages were delivered and not finished."""
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

    def _put_aside(self, start: int, end: int, consumer: Credit, why: str, now_ns: int, delay_ns: int) -> int:
        """Treat messages that came back as the policy says."""
        settings = self.settings
        most = settings.max_attempts if settings.dead_letter_topic != self.topic_name else 0
        if why == RETURNED:
            # The consumer may never have looked at the message, so twice as many attempts are allowed. A
            # message that ends its consumers still leaves the channel.
            most *= 2
        due_ns = 0
        for seq in range(start, end):
            attempts = self.attempts[seq]
            if most and attempts >= most:
                self.dead_letter_queue.add(seq, seq + 1, why, consumer.client)
                continue
            wait_ns = delay_ns or (settings.retry_after_ns(attempts) if why != RETURNED else 0)
            due_ns = now_ns + wait_ns if wait_ns else 0
            if due_ns:
                self.defer(seq, seq + 1, due_ns)
            elif seq < self.expired_below and not within(self.suspended, seq, seq + 1):
                self.give_up_expired(seq, seq + 1)
            else:
                self.enqueue_redelivered(seq, seq + 1)
        return due_ns
