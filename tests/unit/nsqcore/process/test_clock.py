"""The clock for time-outs."""

from nsqcore.process.clock import steady_ns
from tests.support.simulated_loop import SECOND, SimulatedTime


def test_setting_clock_on_wall_does_not_move_it():
    time = SimulatedTime()
    with time.everywhere():
        before = steady_ns()
        time.set_wall(-3600)
        assert steady_ns() == before

        time.advance(5)

        assert steady_ns() - before == 5 * SECOND
