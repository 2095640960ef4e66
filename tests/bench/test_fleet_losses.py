"""Simulated losses in a fleet: which clients notice them, and when."""

import pytest

from bench.fleet_losses import CARRY_AFTER_S, PUBLISH_TIMEOUT_S, Loss, main, play
from bench.fleet_model import Fleet


def of(loss, **changes):
    return play(Fleet(**{"nsqds": 12, "topics": 10, "rate": 1000.0, "spread": 6, **changes}), loss)


def test_producers_of_a_killed_nsqd_take_another_at_once_and_its_messages_wait_until_it_is_back():
    seen = of(Loss("nsqd", lasts_s=100))

    assert seen.moved > 0
    assert seen.held_s == 0
    assert 100 < seen.late_s < 170
    assert seen.found_s < 64


def test_with_a_copy_in_another_zone_they_come_from_there_also_when_a_whole_zone_is_lost():
    without = of(Loss("zone", lasts_s=400))
    copied = of(Loss("zone", lasts_s=400), copies=1)

    assert without.late_s > 400
    assert CARRY_AFTER_S <= copied.late_s < CARRY_AFTER_S + 5
    assert copied.copied_mb > 0 == without.copied_mb


def test_with_a_single_zone_copies_of_neighbours_are_lost_with_it():
    assert of(Loss("zone", lasts_s=100), copies=1, zones=1).late_s > 100


def test_one_that_is_cut_off_is_missed_when_its_answer_is():
    assert of(Loss("nsqd", cut_off=True)).held_s == pytest.approx(PUBLISH_TIMEOUT_S, abs=1)


def test_without_nsqlookupd_those_who_are_connected_go_on_and_others_wait_for_its_end():
    seen = of(Loss("nsqlookupd", lasts_s=200))

    assert seen.moved == 0
    assert 140 <= seen.newcomer_s < 210
    assert seen.unread_s > 160  # on the nsqd that was started again


def test_registrations_of_a_large_fleet_take_nsqlookupd_as_long_as_their_processor_time():
    small, large = (of(Loss("nsqlookupd"), nsqds=nsqds, topics=1000, spread=0) for nsqds in (10, 500))

    assert small.registered_s < 3
    assert large.registered_s > 3


def test_the_tables_have_each_loss(capsys):
    assert main(["--nsqds=10", "--lasts=50"]) == 0

    said = capsys.readouterr().out
    assert all(title in said for title in ("one nsqd, killed", "a zone, cut off", "all nsqlookupd, killed"))
