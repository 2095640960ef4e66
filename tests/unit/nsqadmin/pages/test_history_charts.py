import time

import pytest

from nsqadmin.history.recorder import CHANGE, OVER, Recorder, channel, node, topic
from nsqadmin.history.ring import HistoryFile
from nsqadmin.pages.history_charts import HistoryCharts
from nsqadmin.stats.cluster_sum import ClusterSum


@pytest.fixture
def courses():
    recorder = Recorder(HistoryFile())

    def record(*events):
        now_s = time.time() - 600
        for seconds, kind, text, name in events:
            recorder.note(kind, text, name, now_s + seconds)
        return HistoryCharts(recorder, lambda: ClusterSum({}))

    yield record
    recorder.close()


def test_timeline_begins_with_latest_and_problem_that_ended_is_one_entry(courses):
    found = courses(
        (0, "stuck", "5 messages wait", channel("orders", "billing")),
        (1, CHANGE, "pause channel orders/billing by anna", channel("orders", "billing")),
        (60, f"{OVER}stuck", "5 messages wait", channel("orders", "billing")),
        (61, "down", "Down for 0 s", node("a:4151")),
    ).timeline()

    assert [(one.kind, one.level, one.place) for one in found] == [
        ("down", "problem", "a:4151"),
        (CHANGE, CHANGE, ""),
        ("stuck", "over", "orders / billing"),
    ]
    assert round(found[2].ended_s - found[2].at_s) == 60


def test_timeline_of_topic_has_its_channels_and_its_nodes_and_nothing_else(courses):
    known = courses(
        (0, "stuck", "", channel("orders", "billing")),
        (1, "stuck", "", channel("other", "billing")),
        (2, "down", "", node("a:4151")),
        (3, "down", "", node("b:4151")),
    )

    assert [one.place for one in known.timeline(topic("orders"), nodes=["b:4151"])] == [
        "b:4151",
        "orders / billing",
    ]
    assert HistoryCharts(None, lambda: ClusterSum({})).timeline() == []


def test_timeline_has_one_entry_for_problems_that_begin_together(courses):
    bare = [(number / 300, "no consumers", "9 wait", channel(f"t{number}", "a")) for number in range(300)]
    ends = [(30, f"{OVER}no consumers", "9 wait", name) for _, _, _, name in bare]
    known = courses(
        (0, "down", "", node("a:1")), *bare, (20, "no consumers", "", channel("late", "a")), *ends
    )

    late, together, down = known.timeline()

    assert (late.place, down.place) == ("late / a", "a:1")
    assert (together.place, together.count, together.level) == ("t0 / a and 299 more", 300, "over")


def test_timeline_problem_that_another_replaced_is_not_over(courses):
    name = node("a:4151")
    known = courses(
        (0, "timing out", "", name),
        (1, "unreachable", "", name),
        (29, "down", "", name),
        (30, f"{OVER}unreachable", "", name),
        (50, f"{OVER}down", "", name),
    )

    assert [(one.kind, one.became, one.level) for one in known.timeline()] == [
        ("down", "", "over"),
        ("unreachable", "down", "problem"),
        ("timing out", "", "warning"),
    ]
