"""RunResult of a run in which all went well."""

import pytest

from load.daemons import Backlog, Cost, DaemonUsage
from load.latency import Histogram
from load.profile import parse_profile
from load.tally import TallyResult
from load.verdict import RunResult

PROFILE = parse_profile(
    "p",
    """
    [[publishers]]
    rate = 100
    [[consumers]]
    [thresholds]
    timeouts = 0
    duplicates = 10
    early = 0
    publish_p99_ms = 100
    delivery_p50_ms = 10
    published_share = 0.9
    oldest_s = 5
    memory_mb = 100
    cpu_cores = 0.5
    drained_within_s = 3
    """,
)
GOOD = TallyResult(1000, 0, 0, {"load c": 1000}, {}, 0, [], 0, [])


@pytest.fixture
def times():
    """Make a histogram of 100 times that are all equal."""

    def of(milliseconds):
        histogram = Histogram()
        histogram.record(milliseconds, 100)
        return histogram

    return of


@pytest.fixture
def result(times):
    usage = DaemonUsage("nsqd 1", [(0, Cost(0, 80)), (10, Cost(4, 90))])
    return RunResult(
        PROFILE,
        10.0,
        GOOD,
        {},
        {},
        {"publish": times(50), "delivery": times(5)},
        Backlog(0, 0.0, {}, {}, []),
        [usage],
        1.0,
        [],
        [],
    )
