"""The model of a fleet: each term grows with the quantities that it depends on."""

import pytest

from bench.fleet_checks.rows import Row
from bench.fleet_model import ROWS, Constants, Fleet, costs, main

C = Constants()


def of(**changes):
    return costs(Fleet(**{"nsqds": 100, **changes}), C)


@pytest.mark.parametrize(
    ("figure", "factor"),
    [
        ("lookup_kb", 10),
        ("registration_s", 10),
        ("consumer_connections", 10),
        ("admin_cores", 10),
        ("nodes_mb", 10),
    ],
)
def test_what_belongs_to_each_nsqd_grows_with_their_number(figure, factor):
    assert getattr(of(nsqds=1000), figure) == pytest.approx(factor * getattr(of(), figure))


def test_topics_on_a_subset_of_the_nodes_make_consumers_and_answers_smaller():
    spread, everywhere = of(nsqds=1000, spread=10), of(nsqds=1000)

    assert spread.consumer_connections == 10
    assert spread.lookup_kb < everywhere.lookup_kb / 50
    assert spread.registration_s == pytest.approx(everywhere.registration_s / 100)


def test_a_message_waits_for_a_turn_only_where_there_are_more_nsqd_than_messages_in_flight():
    assert of(nsqds=200, max_in_flight=200).starved_s == 0
    assert of(nsqds=1000, max_in_flight=200).starved_s == 40


def test_figures_of_nsqadmin_get_old_when_asking_takes_more_than_its_share():
    assert of(nsqds=10, topics=10).admin_age_s == 2
    assert of(nsqds=10_000).admin_age_s > 60


def test_copies_cost_what_is_published():
    assert of(copies=0).copy_mb_per_s == 0
    assert of(copies=2).copy_mb_per_s == pytest.approx(2 * of(copies=1).copy_mb_per_s)


def test_the_table_has_every_figure(capsys):
    assert main(["--nsqds=10,1000", "--spread=5"]) == 0

    said = capsys.readouterr().out
    assert all(title in said for title in ROWS)


def test_a_prediction_is_compared_with_what_was_measured():
    assert Row("x", 130.0, 100.0).off == pytest.approx(0.3)
    assert Row("x", 130.0, 100.0).line() == "| x | 130 | 100 | +30% |"
