import pytest

from nsqadmin.collecting.members import Member
from nsqadmin.collecting.node_snapshot import NodeSnapshot
from nsqadmin.history import recorder as history
from nsqadmin.history.recorder import Recorder
from nsqadmin.history.ring import SLOTS, TOTALS, HistoryFile
from nsqadmin.stats.cluster_sum import ClusterSum
from nsqadmin.stats.instant import Instant
from nsqadmin.stats.problems import Level, Problem
from nsqadmin.stats.sums import add_up
from nsqadmin.stats.trend import Counted, NodePace
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.models import NodeInfo, NodeStats
from tests.support.records import channel_json, topic_stats

NOON = 1_800_000_000
SECOND = 1_000_000_000


def cluster(**rates):
    topics = {}
    for name, rate in rates.items():
        before = topic_stats(name, channel_json("a"))
        now = topic_stats(name, channel_json("a", message_count=rate * 10), message_count=rate * 10)
        topics[name] = add_up(name, [(now, [Counted([before], 0)], 10 * SECOND, "n:1")])
    return ClusterSum(topics)


def read(file, name, now_s):
    return [point for _, point in file.read(name, history.ring_of("hour"), now_s)]


def test_whole_and_each_topic_and_channel_are_kept():
    with HistoryFile() as file:
        Recorder(file).record(cluster(orders=100, clicks=20), [], NOON)

        ((total,), (orders,), (channel,)) = (
            read(file, name, NOON)
            for name in (TOTALS, history.topic("orders"), history.channel("clicks", "a"))
        )

    assert round(total.published) == 120
    assert round(orders.published) == 100
    assert (round(channel.published), round(channel.finished)) == (20, 20)


def test_busiest_have_place_and_much_busier_one_takes_place_of_least():
    quiet = {f"t{number}": 1 for number in range(SLOTS)}
    with HistoryFile() as file:
        recorder = Recorder(file)
        recorder.record(cluster(**quiet), [], NOON)
        assert len(file.names) <= SLOTS
        recorder.record(cluster(**quiet, busy=500), [], NOON + 60)

        assert round(read(file, history.topic("busy"), NOON + 60)[-1].published) == 500
        assert history.channel("busy", "a") in file.names
        assert TOTALS in file.names


def test_age_of_oldest_is_kept_where_it_is_known():
    def one(**given):
        stats = topic_stats("orders", channel_json("a", **given))
        return ClusterSum({"orders": add_up("orders", [(stats, (), 0, "n:1")])})

    with HistoryFile() as file:
        recorder = Recorder(file)
        recorder.record(one(oldest_message_time=(NOON - 30) * SECOND), [], NOON)
        recorder.record(one(oldest_message_time=0), [], NOON + 5)
        recorder.record(one(depth=3), [], NOON + 10)

        ages = [point.age_s for point in read(file, history.channel("orders", "a"), NOON + 10)]

    assert [age if age is None else round(age) for age in ages] == [30, 0, None]


@pytest.mark.parametrize("pause_s", [60, 3600])
def test_problems_that_did_not_end_are_known_after_short_pause(monkeypatch, pause_s):
    stuck = Problem(Level.PROBLEM, "stuck", "9 wait", "orders", "a", began=Instant(0, NOON - 50.0))
    down = Problem(Level.PROBLEM, "unreachable", "silent", node="a:1", began=Instant(0, NOON - 40.0))
    with HistoryFile() as file:
        recorder = Recorder(file)
        recorder.record(cluster(orders=1), [], NOON)
        for one in (stuck, down):
            recorder.note(*history.event_of(one), one.since_s)
        recorder.note(f"{history.OVER}unreachable", "silent", history.node("a:1"), NOON - 10.0)
        monkeypatch.setattr("time.time", lambda: NOON + pause_s)

        lasting = [
            history.problem_of(event, Instant(10**12, NOON + pause_s)) for event in recorder.unresolved()
        ]

    if pause_s > 900:
        assert lasting == []
    else:
        (found,) = lasting
        assert (found.key, found.level, found.since_s) == (stuck.key, Level.PROBLEM, NOON - 50)


def test_totals_include_the_last_known_depth_of_node_that_is_silent():
    stats = topic_stats("orders", channel_json("a", depth=200))
    silent = Member("b:1", NodeInfo("b", "b", 0, 1, "1.3.0"))
    silent.snapshot = NodeSnapshot.of(NodeStats("1.3.0", "OK", 0, (stats,)), NodePace(), NOON * SECOND, NOON)
    silent.error = NodeError("GET", "http://b:1/stats", "b:1", "timed out")
    here = topic_stats("orders", channel_json("a", depth=18_000))
    total = ClusterSum({"orders": add_up("orders", [(here, (), 0, "a:1")])})

    with HistoryFile() as file:
        Recorder(file).record(total, [silent], NOON)

        ((all_of,), (orders,)) = (read(file, name, NOON) for name in (TOTALS, history.topic("orders")))

    assert (all_of.depth, all_of.is_partial) == (18_200, True)
    assert (orders.depth, orders.is_partial) == (18_200, True)
