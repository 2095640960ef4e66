from dataclasses import replace

import pytest

from nsqadmin.changes.alerts import MUTE_S, Alerts, key_text, subject_of
from nsqadmin.collecting.views import Round
from nsqadmin.stats.cluster_sum import ClusterSum
from nsqadmin.stats.instant import Instant
from nsqadmin.stats.problems import Level, Problem

STUCK = Problem(
    Level.PROBLEM, "stuck", "9 messages wait", "orders", "billing", messages=9, began=Instant(0, 100.0)
)
NOW = Instant(500 * 10**9, 1000.0)
PAUSED = Problem(Level.WARNING, "paused", "paused", "orders")


class Told(list):
    def __call__(self, word, payload):
        self.append(payload)


async def follow(alerts, *problems, now=NOW):
    await alerts.follow(Round(now, ClusterSum({}), (), problems, (), ()))


async def test_problem_is_told_when_it_comes_and_when_it_is_over_and_not_between():
    told = Told()
    alerts = Alerts(told, "json")
    for problems in ((STUCK, PAUSED), (STUCK,), (STUCK,), ()):
        await follow(alerts, *problems)

    assert [one["status"] for one in told] == ["firing", "resolved"]
    assert told[0] | {"status": ""} == {
        "status": "",
        "level": "problem",
        "state": "stuck",
        "text": "9 messages wait",
        "topic": "orders",
        "channel": "billing",
        "since": 100,
        "messages": 9,
    }


async def test_slack_gets_text():
    told = Told()
    await follow(Alerts(told, "slack"), STUCK)

    assert told == [{"text": "Problem: orders/billing stuck. 9 messages wait"}]


async def test_muted_problem_is_reported_after_an_hour():
    told = Told()
    alerts = Alerts(told, "json")
    alerts.mute(key_text(STUCK.key), NOW)
    await follow(alerts, STUCK)
    assert (told, alerts.muted_until(STUCK)) == ([], 1000.0 + MUTE_S)
    assert alerts.now == (STUCK,)

    await follow(alerts, STUCK, now=NOW.after(MUTE_S))

    assert [one["status"] for one in told] == ["firing"]
    assert alerts.muted_until(STUCK) == 0.0


@pytest.mark.parametrize("step", [-86_400.0, 86_400.0])
async def test_mute_lasts_an_hour_when_clock_is_set(step):
    told = Told()
    alerts = Alerts(told, "json")
    alerts.mute(key_text(STUCK.key), NOW)

    later = NOW.after(MUTE_S - 1)
    await follow(alerts, STUCK, now=later._replace(at_s=later.at_s + step))
    assert (told, alerts.muted_until(STUCK)) == ([], 1000.0 + MUTE_S + step)

    over = NOW.after(MUTE_S)
    await follow(alerts, STUCK, now=over._replace(at_s=over.at_s + step))
    assert len(told) == 1


async def test_unmuted_problem_is_reported_immediately():
    told = Told()
    alerts = Alerts(told, "json")
    alerts.mute(key_text(STUCK.key), NOW)
    await follow(alerts, STUCK)
    alerts.unmute(key_text(STUCK.key))
    await follow(alerts, STUCK)

    assert len(told) == 1


def test_name_of_problem_says_what_it_is_about():
    silent = Problem(Level.PROBLEM, "unreachable", "it does not answer", node="10.0.0.1:4151")

    assert subject_of(key_text(STUCK.key)) == ("orders", "billing", "")
    assert subject_of(key_text(silent.key)) == ("", "", "10.0.0.1:4151")
    assert subject_of("nonsense") == ("", "", "")


@pytest.mark.parametrize(("lasts_s", "told_of"), [(8, 0), (59, 0), (60, 1)])
async def test_alert_needs_minimum_duration(lasts_s, told_of):
    told = Told()
    began = NOW.after(-lasts_s)
    await follow(Alerts(told, "json"), replace(STUCK, began=began))

    assert len(told) == told_of


async def test_restored_problem_is_not_told_of_twice():
    told = Told()
    alerts = Alerts(told, "json")
    alerts.restore([STUCK], NOW)
    await follow(alerts, STUCK)
    await follow(alerts)

    assert [one["status"] for one in told] == ["resolved"]
