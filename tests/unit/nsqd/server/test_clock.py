"""What the engine knows of the wall clock."""

from nsqd.engine.clock import Wall
from nsqd.server.clock import follow_clock, now_ns
from tests.support.simulated_loop import SECOND, SimulatedTime


def test_step_of_clock_on_wall_is_noted_and_moves_no_deadline():
    time, wall = SimulatedTime(), Wall()
    with time.everywhere():
        follow_clock(wall)
        before, deadline = wall.offset_ns, now_ns()
        time.set_wall(3600)

        follow_clock(wall)

        assert wall.offset_ns - before == 3600 * SECOND
        assert now_ns() == deadline
