from dataclasses import replace

import pytest

from nsqadmin.stats.instant import Instant
from nsqadmin.stats.problem_tracker import RESTORED_S, ProblemTracker
from nsqadmin.stats.problems import Level, Problem, When


def problem(kind="stuck", topic="orders", channel="audit", **when):
    return Problem(Level.PROBLEM, kind, "", topic, channel, when=When(**when))


def at(seconds, clock_s=None):
    """A moment at which the clock says *clock_s*."""
    return Instant(int(seconds) * 10**9, float(seconds if clock_s is None else clock_s))


def shown(book, now_s, *problems, clock_s=None):
    return [(one.kind, one.level, one.since_s) for one in book.note(problems, at(now_s, clock_s))]


def test_problem_without_delay_is_shown_and_ends_immediately():
    book = ProblemTracker()

    assert shown(book, 100, problem()) == [("stuck", Level.PROBLEM, 100)]
    assert shown(book, 160, problem()) == [("stuck", Level.PROBLEM, 100)]
    assert shown(book, 162) == []
    assert shown(book, 164, problem()) == [("stuck", Level.PROBLEM, 164)]


def test_problem_with_delay_is_shown_after_lasting_so_long():
    book = ProblemTracker()
    slow = problem(been_s=10, shown_s=60)

    assert shown(book, 100, slow) == []
    assert shown(book, 140, slow) == []
    assert shown(book, 150, slow) == [("stuck", Level.PROBLEM, 90)]
    assert shown(ProblemTracker(), 100, problem(been_s=60, shown_s=60)) == [("stuck", Level.PROBLEM, 40)]

    book = ProblemTracker()
    shown(book, 100, slow)
    shown(book, 110)
    assert shown(book, 155, slow) == []


def test_mark_of_two_looks_does_not_flicker():
    book = ProblemTracker()
    steady = problem(stays_s=6)
    shown(book, 100, steady)

    assert shown(book, 104) == [("stuck", Level.PROBLEM, 100)]
    assert shown(book, 105, steady) == [("stuck", Level.PROBLEM, 100)]
    assert shown(book, 112) == []


def test_problem_is_warning_until_alert_time():
    book = ProblemTracker()
    bare = problem("no consumers", alert_s=65)

    assert shown(book, 100, bare) == [("no consumers", Level.WARNING, 100)]
    assert shown(book, 165, bare) == [("no consumers", Level.PROBLEM, 100)]


def test_topic_is_evaluated_without_the_others():
    book = ProblemTracker()
    book.note([problem(), problem(topic="clicks")], at(100))

    assert [one.topic for one in book.note([], at(101), "orders")] == []
    assert [one.topic for one in book.note([problem(topic="clicks")], at(102))] == ["clicks"]


# -- the clock is set


HOUR = 3600


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_warning_does_not_become_problem_when_clock_is_set(step):
    book = ProblemTracker()
    bare = problem("no consumers", alert_s=65)
    shown(book, 100, bare)

    assert shown(book, 110, bare, clock_s=110 + step) == [("no consumers", Level.WARNING, 100 + step)]
    assert shown(book, 164, bare, clock_s=164 + step) == [("no consumers", Level.WARNING, 100 + step)]
    assert shown(book, 165, bare, clock_s=165 + step) == [("no consumers", Level.PROBLEM, 100 + step)]


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_problem_that_began_before_clock_was_set_is_shown_in_time(step):
    book = ProblemTracker()
    slow = problem(shown_s=60)
    shown(book, 100, slow)

    assert shown(book, 159, slow, clock_s=159 + step) == []
    assert shown(book, 160, slow, clock_s=160 + step) == [("stuck", Level.PROBLEM, 100 + step)]


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_ended_problem_goes_in_time_when_clock_is_set(step):
    book = ProblemTracker()
    shown(book, 100, problem(stays_s=6))

    assert shown(book, 105, clock_s=105 + step) == [("stuck", Level.PROBLEM, 100 + step)]
    assert shown(book, 106, clock_s=106 + step) == []


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_problem_with_known_beginning_has_its_duration(step):
    book = ProblemTracker()
    silent = replace(problem("unreachable", alert_s=65), began=at(40))

    assert shown(book, 100, silent, clock_s=100 + step) == [("unreachable", Level.WARNING, 40 + step)]
    assert shown(book, 105, silent, clock_s=105 + step) == [("unreachable", Level.PROBLEM, 40 + step)]


def test_unjudged_problem_stays_as_last_known():
    book = ProblemTracker()
    shown(book, 100, problem())

    (kept,) = book.note([], at(160), unjudged=lambda _: "nsqd a:1 does not answer")
    (found,) = book.note([problem()], at(170), unjudged=lambda _: "nsqd a:1 does not answer")

    assert (kept.since_s, kept.sentence) == (100, " (last known: nsqd a:1 does not answer)")
    assert (found.since_s, found.last_known) == (100, "")
    assert book.note([], at(180)) == []


def test_restored_concern_keeps_its_beginning_and_goes_if_it_is_not_found():
    book = ProblemTracker()
    earlier = replace(problem(), began=at(40))
    book.restore([earlier, replace(earlier, channel="other")], at(100))

    first = book.note([problem()], at(102))
    later = book.note([problem()], at(100 + RESTORED_S))

    assert [(one.channel, one.since_s, bool(one.last_known)) for one in first] == [
        ("audit", 40, False),
        ("other", 40, True),
    ]
    assert [(one.channel, one.since_s) for one in later] == [("audit", 40)]
