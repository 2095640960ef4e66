"""A consumer never gives out more RDY than it may, and serves every connection, whatever happens to them."""

import random

from hypothesis import given
from hypothesis import strategies as st

from nsqclient._backoff import Backoff, Phase
from nsqclient._rdy import RdyDistribution

# The defaults of the consumer, in seconds.
IDLE_TIMEOUT, HOLD_TIMEOUT, REDISTRIBUTE = 10, 30, 5

keys = st.integers(0, 6)
events = st.one_of(
    st.tuples(st.just("add"), keys, st.integers(1, 40)),
    st.tuples(st.just("remove"), keys),
    st.tuples(st.just("heard"), keys),
    st.tuples(st.just("enter"), st.sampled_from(Phase)),
    st.tuples(st.just("resize"), st.integers(0, 30)),
    st.tuples(st.just("rotate")),
)


@given(st.integers(0, 30), st.lists(events, max_size=60), st.randoms(use_true_random=False))
def test_sum_never_exceeds_max_in_flight_and_somebody_is_always_served(max_in_flight, tail_records, chance):
    rdy: RdyDistribution[int] = RdyDistribution(max_in_flight, 10, 30)
    alive: dict[int, int] = {}
    told: dict[int, int] = {}
    phase = Phase.RUNNING
    for step, (what, *arguments) in enumerate(tail_records):
        now = step * 7.0
        changes: dict[int, int] = {}
        if what == "add":
            key, limit = arguments
            if key not in alive:
                alive[key] = limit
                told[key] = 0
                changes = rdy.add(key, limit, now)
        elif what == "remove":
            alive.pop(arguments[0], None)
            told.pop(arguments[0], None)
            changes = rdy.remove(arguments[0], now, chance.choice)
        elif what == "heard":
            rdy.heard(arguments[0], now)
        elif what == "enter":
            phase = arguments[0]
            changes = rdy.enter(phase, now, chance.choice)
        elif what == "resize":
            max_in_flight = arguments[0]
            changes = rdy.resize(max_in_flight, now)
        else:
            changes = rdy.rotate(now, chance.choice)
        for key, count in changes.items():
            # While the changes are sent, the sum is at most the larger of the sum before and max_in_flight.
            before = sum(told.values())
            told[key] = count
            assert sum(told.values()) <= max(before, max_in_flight)

        assert told.keys() == alive.keys()
        assert all(0 <= count <= alive[key] for key, count in told.items())
        assert sum(told.values()) <= {Phase.STOPPED: 0, Phase.TRIAL: 1, Phase.RUNNING: max_in_flight}[phase]
        if alive and max_in_flight > 0 and phase is not Phase.STOPPED:
            assert sum(told.values()) > 0


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.sampled_from(("message", "answer", "rotate")), keys), max_size=100),
    st.randoms(use_true_random=False),
)
def test_taking_turns_never_brings_more_messages_than_max_in_flight(max_in_flight, tail_records, chance):
    rdy: RdyDistribution[int] = RdyDistribution(max_in_flight, IDLE_TIMEOUT, HOLD_TIMEOUT)
    for key in range(7):
        rdy.add(key, 2500, 0)
    in_flight = dict.fromkeys(range(7), 0)
    for step, (what, key) in enumerate(tail_records):
        now = step * 7.0
        if what == "message" and in_flight[key] < rdy.count(key):
            in_flight[key] += 1
            rdy.heard(key, now)
        elif what == "answer" and in_flight[key]:
            in_flight[key] -= 1
        elif what == "rotate":
            rdy.rotate(now, chance.choice, in_flight)

        assert sum(max(in_flight[key], rdy.count(key)) for key in in_flight) <= max_in_flight

    rdy.rotate(1e6, chance.choice)
    assert sum(rdy.count(key) for key in in_flight) == max_in_flight


class Watched:
    """A consumer in simulated time: RDY distribution and back-off, connected as in the real consumer."""

    def __init__(self, max_in_flight: int, busy: set[int], idle: set[int], chance: random.Random) -> None:
        self.rdy: RdyDistribution[int] = RdyDistribution(max_in_flight, IDLE_TIMEOUT, HOLD_TIMEOUT)
        self.backoff = Backoff()
        self.busy = busy  # nsqd with more messages than can ever be read
        self.now = 0.0
        self.resume_at = 0.0
        self.served: set[int] = set()
        self.choose = chance.choice
        for key in sorted(busy | idle, key=lambda _: chance.random()):
            self.rdy.add(key, 2500, self.now)

    def answer(self, *, failed: bool) -> None:
        stop_for = self.backoff.failed() if failed else self.backoff.succeeded()
        if stop_for is not None:
            self.resume_at = self.now + stop_for
        if stop_for is not None or self.backoff.phase is Phase.RUNNING:
            self.rdy.enter(self.backoff.phase, self.now, self.choose)

    def second(self, *, failing: bool) -> None:
        """A second passes; every busy nsqd that has RDY sends a message, which is answered."""
        self.now += 1
        if self.backoff.phase is Phase.STOPPED and self.now >= self.resume_at:
            self.backoff.waited()
            self.rdy.enter(self.backoff.phase, self.now, self.choose)
        if self.now % REDISTRIBUTE == 0:
            self.rdy.rotate(self.now, self.choose)
        for key in [key for key in self.busy if self.rdy.count(key)]:
            self.rdy.heard(key, self.now)
            self.served.add(key)
            self.answer(failed=failing)


@given(
    st.integers(1, 6),
    st.sets(keys, min_size=1),
    st.sets(keys),
    st.integers(0, 400),
    st.randoms(use_true_random=False),
)
def test_no_nsqd_with_messages_is_left_waiting_once_handler_is_well(
    max_in_flight, busy, idle, failing_seconds, chance
):
    consumer = Watched(max_in_flight, busy, idle - busy, chance)
    for _ in range(failing_seconds):
        consumer.second(failing=True)
    connections = len(busy | idle)
    # The longest back-off; then, for each level, a turn of all connections and a back-off; then a last turn.
    one_turn = connections * (HOLD_TIMEOUT + REDISTRIBUTE + 1)
    patience = 120 + 7 * (one_turn + 120) + one_turn

    consumer.served.clear()
    for _ in range(patience):
        consumer.second(failing=False)
        if consumer.served == busy and consumer.backoff.phase is Phase.RUNNING:
            break

    assert consumer.backoff.phase is Phase.RUNNING
    assert consumer.served == busy


@given(st.integers(1, 30), st.integers(1, 7), st.integers(1, 7), st.randoms(use_true_random=False))
def test_share_that_lost_connection_held_is_passed_on(max_in_flight, before, lost, chance):
    rdy: RdyDistribution[int] = RdyDistribution(max_in_flight, IDLE_TIMEOUT, HOLD_TIMEOUT)
    for key in range(before + lost):
        rdy.add(key, 2500, 0)
    for key in range(lost):
        rdy.remove(key, 1, chance.choice)

    counts = [rdy.count(key) for key in range(lost, before + lost)]

    assert sum(counts) == (max_in_flight // before * before if before <= max_in_flight else max_in_flight)
