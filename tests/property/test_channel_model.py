"""A channel against a plain model: no message is lost, duplicated or sent to two consumers."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nsqd.engine.backlog import Backlog
from nsqd.engine.channel import Consumer
from nsqd.engine.state import take_change
from nsqd.log.encoder import Batch
from nsqd.log.tail_records import CheckpointPosition
from nsqd.storage import checkpoint
from tests.support.engine import SECOND, Node, Outlet


class ChannelMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.node = Node()
        self.channel = self.node.channel()
        self.consumers = []
        self.unfinished = set()
        self.held = {}
        self.attempts = {}
        self.chain = []
        self.ids = self.node.broker.ids

    def collect(self):
        """Note in the model the messages that consumers were sent."""
        for consumer, outlet in self.consumers:
            for message_id, attempts, _ in outlet.taken():
                seq = self.ids.decode(message_id)
                assert seq in self.unfinished
                assert seq not in self.held, "given to two at the same time"
                self.held[seq] = consumer
                self.attempts[seq] = self.attempts.get(seq, 0) + 1
                assert attempts == self.attempts[seq]

    def settle(self):
        """Forget consumers whose messages are no longer in flight."""
        flying = set(self.flying())
        self.held = {seq: consumer for seq, consumer in self.held.items() if seq in flying}

    def flying(self):
        return [seq for start, end in self.channel.backlog.in_flight.ranges() for seq in range(start, end)]

    def step(self):
        self.settle()
        self.node.turn()
        self.collect()

    @rule(count=st.integers(1, 30))
    def publish(self, count):
        first = self.node.topic().log.next_seq
        self.node.topic().stage_batch(Batch([b"x"] * count), self.node.now_ns)
        self.node.broker.dirty[self.node.topic()] = None
        self.unfinished |= set(range(first, first + count))
        self.step()

    @rule(delay=st.integers(1, 5))
    def publish_deferred(self, delay):
        self.unfinished.add(self.node.topic().log.next_seq)
        topic = self.node.topic()
        topic.stage(b"x", self.node.now_ns, self.node.now_ns + delay * 10**9)
        self.node.broker.dirty[topic] = None
        self.step()

    @rule(rdy=st.integers(0, 40), msg_timeout=st.integers(1, 10))
    def subscribe(self, rdy, msg_timeout):
        if len(self.consumers) < 4:
            self.consumers.append(self.node.subscribe(self.channel, rdy, msg_timeout))
            self.step()

    @rule(data=st.data(), rdy=st.integers(0, 40))
    def set_rdy(self, data, rdy):
        if self.consumers:
            consumer, _ = data.draw(st.sampled_from(self.consumers))
            self.node.ready(consumer, rdy)
            self.step()

    def a_held_one(self, data):
        if not self.held:
            return None, None
        seq = data.draw(st.sampled_from(sorted(self.held)))
        return seq, self.held[seq]

    @rule(data=st.data())
    def finish(self, data):
        seq, consumer = self.a_held_one(data)
        if seq is not None:
            self.channel.finish([seq], consumer, self.node.now_ns)
            del self.held[seq]
            self.unfinished.discard(seq)
            self.node.ready(consumer, consumer.rdy)
            self.step()

    @rule(data=st.data(), count=st.integers(1, 20))
    def finish_over_the_wire(self, data, count):
        seq, consumer = self.a_held_one(data)
        if seq is None:
            return
        session, _ = self.node.session()
        session.receive(b"  V2", self.node.now_ns)
        session.consumer, session.state = consumer, 3
        mine = [s for s in sorted(self.held) if self.held[s] is consumer and s >= seq][:count]
        lines = b"".join(b"FIN " + self.ids.encode(s) + b"\n" for s in mine)
        session.receive(lines, self.node.now_ns)
        assert session.take_replies() == b""
        for done in mine:
            del self.held[done]
            self.unfinished.discard(done)
        self.step()

    @rule(data=st.data(), delay=st.sampled_from([0, 0, 1, 3]))
    def requeue(self, data, delay):
        seq, consumer = self.a_held_one(data)
        if seq is not None:
            self.channel.requeue(seq, consumer, delay * 10**9, self.node.now_ns)
            self.node.broker.reschedule(self.channel)
            # Serve the whole channel: this consumer may take nothing more while another one is ready.
            self.node.broker.serve(self.channel)
            del self.held[seq]
            self.node.ready(consumer, consumer.rdy)
            self.step()

    @rule(data=st.data())
    def touch(self, data):
        seq, consumer = self.a_held_one(data)
        if seq is not None:
            self.channel.touch(seq, consumer, 900 * 10**9, self.node.now_ns)
            self.node.broker.reschedule(self.channel)

    @rule(data=st.data())
    def answer_as_a_stranger(self, data):
        seq, _ = self.a_held_one(data)
        if seq is not None:
            stranger = Consumer(Outlet(), SECOND)
            for wrong in (seq + 10**6, seq):
                failed = self.channel.finish([wrong], stranger, self.node.now_ns)
                assert [index for index, _ in failed] == [0]

    @rule(data=st.data())
    def disconnect(self, data):
        if self.consumers:
            gone = data.draw(st.sampled_from(self.consumers))
            self.consumers.remove(gone)
            self.node.broker.remove_consumer(gone[0])
            self.step()

    @rule(seconds=st.integers(1, 6))
    def time_passes(self, seconds):
        self.node.now_ns += seconds * 10**9
        self.node.broker.expire(self.node.now_ns)
        self.step()

    @rule(data=st.data())
    def commit(self, data):
        if self.unfinished:
            seq = data.draw(st.sampled_from(sorted(self.unfinished)))
            self.channel.commit(seq)
            self.unfinished = {kept for kept in self.unfinished if kept >= seq}
            self.node.broker.serve(self.channel)
            self.step()

    @rule()
    def empty(self):
        self.channel.empty()
        self.unfinished.clear()
        self.step()

    @invariant()
    def each_pending_message_is_in_one_place(self):
        waiting = [seq for start, end in self.channel.backlog.pending.ranges() for seq in range(start, end)]
        deferred = [seq for _, seq in self.channel.backlog.deferred]
        flying = self.flying()
        assert sorted(waiting + deferred + flying) == sorted(self.unfinished)
        assert self.channel.backlog.pending.count == len(waiting)
        assert self.channel.backlog.in_flight.count == len(flying)
        assert sum(consumer.in_flight for consumer, _ in self.consumers) == len(flying)

    @invariant()
    def nobody_is_ready_while_messages_wait(self):
        if self.channel.backlog.pending.count:
            assert all(consumer.credit <= 0 for consumer, _ in self.consumers)

    @invariant()
    def backlog_has_the_unfinished_messages(self):
        end = self.node.topic().log.next_seq
        ranges = self.channel.backlog.unfinished(0, end)
        assert [seq for low, high in ranges for seq in range(low, high)] == sorted(self.unfinished)
        assert self.channel.backlog.lowest() == min(self.unfinished, default=None)

    @rule(whole=st.booleans())
    def write_a_checkpoint(self, whole):
        """A start on the chain has the same backlog, with the same due times and attempts."""
        topic, backlog = self.node.topic(), self.channel.backlog
        change = take_change(backlog, self.channel)
        self.chain = [] if whole or not self.chain else self.chain
        added = {backlog: change} if self.chain else None
        self.chain.append(checkpoint.encoder(topic, 1, CheckpointPosition(), added)())

        state = checkpoint.decode(b"".join(self.chain)).channels["c"]
        again = Backlog()
        state.fill(again, topic.wall.offset_ns)

        deferred = {seq: due for due, seq in backlog.deferred}
        late = {seq: due for due, seq in again.deferred if due > self.node.now_ns}
        waiting = [seq for start, end in again.pending.ranges() for seq in range(start, end)]
        assert sorted(waiting + [seq for _, seq in again.deferred]) == sorted(self.unfinished)
        assert late == {seq: due for seq, due in deferred.items() if due > self.node.now_ns}
        assert again.attempts == {
            seq: count for seq, count in self.attempts.items() if seq in self.unfinished
        }

    @invariant()
    def the_timer_is_set_for_what_comes_next(self):
        due = self.channel.next_due_ns()
        if due is not None:
            assert self.node.broker.next_due_ns() <= due


ChannelMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestChannel = ChannelMachine.TestCase
