"""A backlog against a map from each message to its state, with every operation."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nsqd.engine.backlog import Backlog, MessageState
from nsqd.engine.channel import Consumer
from nsqd.engine.in_flight import Run
from nsqd.log.ranges import merged, ranges_of, size_of, within
from tests.support.engine import Outlet

PENDING, DEFERRED, IN_FLIGHT, DEAD_LETTERING, FINISHED = (
    MessageState.PENDING,
    MessageState.DEFERRED,
    MessageState.IN_FLIGHT,
    MessageState.DEAD_LETTERING,
    MessageState.FINISHED,
)
# Due times lie in several slots of `nsqd.engine.deferred`.
DELAYS_NS = st.integers(0, 300).map(lambda ms: ms * 1_000_000)
SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6)), max_size=3)


class BacklogMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.backlog = Backlog()
        self.consumers = [Consumer(Outlet(), 60) for _ in range(3)]
        self.states = {}
        # Of messages in flight the consumer and the deadline, of deferred ones the due time.
        self.held = {}
        self.dues = {}
        self.attempts = {}
        self.suspended = set()
        self.moving = []
        self.base = self.end = 0
        self.now_ns = 10**9

    # Node ids from 512 on set the highest bit of a position.
    @initialize(base=st.sampled_from([0, (1 << 63) - 7, (1 << 64) - 4096]))
    def begin(self, base):
        self.base = self.end = base
        self.backlog.reset(base)

    def of(self, *states):
        return [seq for seq, state in self.states.items() if state in states]

    def ranges(self, spans):
        """Ranges that lie among the newest messages, in any order."""
        low = max(self.base, self.end - 40)
        return [(low + 3 * at, low + 3 * at + length) for at, length in spans]

    def become(self, seqs, state):
        for seq in seqs:
            self.states[seq] = state
            self.held.pop(seq, None)
            self.dues.pop(seq, None)
            if state is FINISHED:
                self.attempts.pop(seq, None)

    def become_deferred(self, seqs, due_ns):
        self.become(seqs, DEFERRED)
        self.dues.update(dict.fromkeys(seqs, due_ns))

    def came_back(self, seqs):
        for seq in seqs:
            self.attempts.setdefault(seq, 1)

    # --- new messages ---

    @rule(
        count=st.integers(1, 9), gap=st.integers(0, 2), delay=st.none() | DELAYS_NS, tried=st.integers(0, 2)
    )
    def publish(self, count, gap, delay, tried):
        start = self.end + gap
        self.become(range(self.end, start), FINISHED)
        self.end = start + count
        due_ns = 0 if delay is None else self.now_ns + delay
        self.backlog.extend(start, self.end, due_ns, tried)
        self.become(range(start, self.end), PENDING)
        if due_ns:
            self.become_deferred(range(start, self.end), due_ns)
        if tried:
            self.attempts.update(dict.fromkeys(range(start, self.end), tried))

    @rule(count=st.integers(1, 6), done=st.integers(0, 3), delay=st.none() | DELAYS_NS)
    def merge(self, count, done, delay):
        other = Backlog()
        start, self.end = self.end, self.end + count
        due_ns = 0 if delay is None else self.now_ns + delay
        other.reset(start)
        other.extend(start, self.end, due_ns)
        other.remove([(start, start + done)])
        self.backlog.merge(other)
        self.become(range(start, self.end), PENDING)
        if due_ns:
            self.become_deferred(range(start, self.end), due_ns)
        self.become(range(start, min(start + done, self.end)), FINISHED)

    # --- delivery and answers ---

    @precondition(lambda self: self.backlog.pending.count)
    @rule(count=st.integers(1, 9), who=st.integers(0, 2), wait=st.integers(1, 9), scattered=st.booleans())
    def deliver(self, count, who, wait, scattered):
        consumer, deadline_ns = self.consumers[who], self.now_ns + wait * 10**8
        ranges = merged(self.backlog.pending.first(count))
        assert self.backlog.pending.remove(ranges, size_of(ranges)) == size_of(ranges)
        seqs = [seq for start, end in ranges for seq in range(start, end)]
        if scattered and len(seqs) > 1:
            run = Run(seqs[0], seqs[-1] + 1, consumer, self.now_ns, deadline_ns, None, list(seqs))
            self.backlog.in_flight.add(run)
        else:
            for start, end in ranges:
                self.backlog.in_flight.add(Run(start, end, consumer, self.now_ns, deadline_ns))
        self.become(seqs, IN_FLIGHT)
        self.held.update(dict.fromkeys(seqs, (consumer, deadline_ns)))

    @rule(data=st.data(), who=st.integers(0, 2))
    def answer(self, data, who):
        consumer = self.consumers[who]
        seqs = data.draw(st.lists(st.sampled_from(sorted(self.states)), unique=True)) if self.states else []
        mine = [seq for seq in seqs if self.held.get(seq, (None,))[0] is consumer]
        failed = self.backlog.in_flight.take_each(seqs, consumer)
        assert [seqs[index] for index, _ in failed] == [seq for seq in seqs if seq not in mine]
        self.backlog.finish(ranges_of(sorted(mine)))
        self.become(mine, FINISHED)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def answer_the_head_of_a_run(self, data):
        seq = data.draw(st.sampled_from(sorted(self.held)))
        unbroken = self.backlog.in_flight.unbroken(seq, self.held[seq][0])
        if unbroken:
            count = data.draw(st.integers(1, unbroken))
            self.backlog.in_flight.take_head(seq, count)
            self.backlog.finish([(seq, seq + count)])
            self.become(range(seq, seq + count), FINISHED)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), delay=st.none() | DELAYS_NS)
    def requeue(self, data, delay):
        seq = data.draw(st.sampled_from(sorted(self.held)))
        self.backlog.in_flight.take(seq, self.held[seq][0])
        self.backlog.note_delivered(seq, seq + 1)
        self.came_back([seq])
        if delay is None:
            self.backlog.enqueue([(seq, seq + 1)], redelivered=True)
            self.become([seq], PENDING)
        else:
            self.backlog.defer(seq, seq + 1, self.now_ns + delay)
            self.become_deferred([seq], self.now_ns + delay)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), wait=st.integers(0, 12))
    def touch(self, data, wait):
        seq = data.draw(st.sampled_from(sorted(self.held)))
        consumer, _ = self.held[seq]
        self.held[seq] = consumer, self.now_ns + wait * 10**8
        self.backlog.in_flight.touch(seq, *self.held[seq])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def break_a_run(self, data):
        seq = data.draw(st.sampled_from(sorted(self.held)))
        if self.backlog.in_flight.unbroken(seq, self.held[seq][0]):
            self.backlog.in_flight.break_run(seq)

    @rule(who=st.integers(0, 2))
    def leave(self, who):
        mine = sorted(seq for seq, (consumer, _) in self.held.items() if consumer is self.consumers[who])
        ranges = self.backlog.in_flight.of_consumer(self.consumers[who])
        assert merged(ranges) == ranges_of(mine)
        self.put_back(ranges)

    def put_back(self, ranges):
        seqs = [seq for start, end in ranges for seq in range(start, end)]
        for start, end in ranges:
            self.backlog.note_delivered(start, end)
        self.backlog.enqueue(ranges, redelivered=True)
        self.came_back(seqs)
        self.become(seqs, PENDING)

    # --- time ---

    @rule(more=st.integers(0, 9))
    def time_passes(self, more):
        self.now_ns += more * 10**8
        in_flight, deferred = self.backlog.in_flight, self.backlog.deferred
        late = {seq for seq, (_, deadline_ns) in self.held.items() if deadline_ns <= self.now_ns}
        assert not late or in_flight.next_deadline_ns() <= self.now_ns
        found = in_flight.expired(self.now_ns)
        for consumer, ranges in found:
            assert all(self.held[seq][0] is consumer for start, end in ranges for seq in range(start, end))
        ranges = merged([part for _, ranges in found for part in ranges])
        assert ranges == ranges_of(sorted(late))
        self.put_back(ranges)

        due = [seq for seq, due_ns in self.dues.items() if due_ns <= self.now_ns]
        lowest = self.backlog.release_due(self.now_ns)
        assert lowest == min(due, default=None)
        assert (deferred.next_due_ns() is None) == (deferred.count == 0)
        self.become(due, PENDING)

    # --- without a consumer ---

    @rule(spans=SPANS)
    def remove(self, spans):
        ranges = self.ranges(spans)
        gone = [seq for seq in self.states if within(merged(ranges), seq, seq + 1)]
        gone = sorted(seq for seq in gone if self.states[seq] is not FINISHED)
        held = {consumer: [] for consumer in self.consumers}
        for seq in gone:
            if seq in self.held:
                held[self.held[seq][0]].append(seq)
        removed, taken = self.backlog.remove(ranges)
        assert removed == ranges_of(gone)
        for consumer, seqs in held.items():
            found = merged([part for one, ranges in taken if one is consumer for part in ranges])
            assert found == ranges_of(seqs)
        self.become(gone, FINISHED)

    @rule(spans=SPANS, delay=st.none() | DELAYS_NS)
    def move(self, spans, delay):
        """Take messages out of their state: they are deferred, or pending again."""
        unfinished = [part for one in merged(self.ranges(spans)) for part in self.backlog.unfinished(*one)]
        self.backlog.discard(unfinished)
        seqs = [seq for start, end in unfinished for seq in range(start, end)]
        if delay is None:
            self.backlog.enqueue(unfinished)
            self.become(seqs, PENDING)
        else:
            for start, end in unfinished:
                self.backlog.defer(start, end, self.now_ns + delay)
            self.become_deferred(seqs, self.now_ns + delay)

    @rule(spans=SPANS)
    def give_up(self, spans):
        unfinished = [part for one in merged(self.ranges(spans)) for part in self.backlog.unfinished(*one)]
        self.backlog.discard(unfinished)
        for start, end in unfinished:
            self.backlog.dead_letter_queue.add(start, end, "expired")
            self.become(range(start, end), DEAD_LETTERING)

    @rule(count=st.integers(1, 9))
    def begin_dead_letters(self, count):
        self.moving += self.backlog.dead_letter_queue.take(count)

    @precondition(lambda self: self.moving)
    @rule(written=st.booleans())
    def end_dead_letter(self, written):
        move = self.moving.pop()
        if not written:
            self.backlog.dead_letter_queue.failed(move)
        elif self.backlog.finish_dead(move):
            self.become(range(move.start, move.end), FINISHED)

    @rule(spans=SPANS)
    def suspend_only(self, spans):
        ranges = merged(self.ranges(spans))
        self.backlog.suspend(ranges)
        self.suspended = {seq for start, end in ranges for seq in range(start, end)}

    @rule(count=st.integers(1, 9))
    def give_up_the_oldest(self, count):
        ranges = merged(self.backlog.pending.first(count))
        assert size_of(ranges) == min(count, self.backlog.pending.count)
        self.backlog.remove(ranges)
        self.become([seq for start, end in ranges for seq in range(start, end)], FINISHED)

    # --- what holds at any time ---

    @invariant()
    def each_message_has_the_state_of_the_model(self):
        assert {seq: self.backlog.state_of(seq) for seq in self.states} == self.states

    @invariant()
    def each_state_has_its_messages(self):
        backlog = self.backlog
        pending = [seq for seq in self.of(PENDING) if seq not in self.suspended]
        assert merged(backlog.pending.ranges()) == ranges_of(sorted(pending))
        assert {seq: due_ns for due_ns, seq in backlog.deferred} == self.dues
        assert backlog.in_flight.ranges() == ranges_of(sorted(self.held))
        counts = (backlog.pending.count, backlog.deferred.count, backlog.in_flight.count)
        assert counts == (len(pending), len(self.dues), len(self.held))
        assert backlog.dead_letter_queue.count == len(self.of(DEAD_LETTERING))
        assert backlog.count() == sum(counts) + backlog.dead_letter_queue.count

    @invariant()
    def questions_have_the_answers_of_the_model(self):
        backlog, half = self.backlog, self.end - (self.end - self.base) // 2
        unfinished = sorted(self.of(PENDING, DEFERRED, IN_FLIGHT, DEAD_LETTERING))
        assert backlog.unfinished(0, self.end + 10) == ranges_of(unfinished)
        assert backlog.count_unfinished(half, self.end) == sum(seq >= half for seq in unfinished)
        assert backlog.lowest() == min(unfinished, default=None)
        below = merged(backlog.pending.below(half))
        assert size_of(below) == backlog.pending.count_below(half)
        assert below == within(merged(backlog.pending.ranges()), 0, half)
        assert backlog.attempts == self.attempts

    @invariant()
    def each_consumer_knows_how_many_it_has(self):
        for consumer in self.consumers:
            assert consumer.in_flight == sum(one is consumer for one, _ in self.held.values())


BacklogMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestBacklog = BacklogMachine.TestCase
