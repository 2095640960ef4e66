"""The processor time and memory that a daemon used."""

from load.daemons import Cost, DaemonUsage


def test_processor_time_of_daemon_that_was_killed_begins_again():
    usage = DaemonUsage("nsqd", [(0, Cost(5, 60)), (10, Cost(8, 90)), (12, Cost(1, 50)), (20, Cost(3, 55))])

    assert usage.cpu_s == 3 + 1 + 2
    assert usage.cores == 6 / 20
    assert usage.memory_mb == 90


def test_daemon_that_tells_nothing_cost_nothing():
    assert (DaemonUsage("nsqd").cores, DaemonUsage("nsqd").memory_mb) == (0, 0)
