"""The clocks by which nsqadmin measures."""

from nsqadmin.collecting.clock import instant
from tests.support.simulated_loop import SimulatedTime


def test_setting_clock_moves_time_of_day_and_no_span():
    time = SimulatedTime()
    with time.everywhere():
        before = instant()
        time.set_wall(3600)
        after = instant()

    assert after.since(before) == 0
    assert after.at_s - before.at_s == 3600
