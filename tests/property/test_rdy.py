"""Whatever happens to its connections, a consumer never allows more than it should."""

from hypothesis import given
from hypothesis import strategies as st

from nsqcore.client.backoff import Phase
from nsqcore.client.rdy import RdyDistribution

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
def test_the_sum_never_exceeds_max_in_flight_and_somebody_is_always_served(max_in_flight, happenings, chance):
    rdy: RdyDistribution[int] = RdyDistribution(max_in_flight, 10, 30)
    alive: dict[int, int] = {}
    told: dict[int, int] = {}
    phase = Phase.RUNNING
    for step, (what, *arguments) in enumerate(happenings):
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
        told.update(changes)

        assert told.keys() == alive.keys()
        assert all(0 <= count <= alive[key] for key, count in told.items())
        assert sum(told.values()) <= {Phase.STOPPED: 0, Phase.TRIAL: 1, Phase.RUNNING: max_in_flight}[phase]
        if alive and max_in_flight > 0 and phase is not Phase.STOPPED:
            assert sum(told.values()) > 0
