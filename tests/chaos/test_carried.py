"""A short run of histories of several nodes; `python -m tests.campaign.carried histories` is the long one."""

from collections import Counter

import pytest

from tests.campaign.carried.histories import CarriedHistory

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("first", range(0, 12, 6))
def test_no_message_that_was_answered_with_ok_is_lost(first):
    finished = carried = 0
    for seed in range(first, first + 6):
        history = CarriedHistory(seed).run()

        assert history.lost() == [], f"seed {seed}"
        finished += sum(map(len, history.told.done.values()))
        carried += history.told.carried

    # They do what they are about.
    assert finished > 100
    assert carried > 5


def test_nothing_is_lost_while_people_delete_empty_seek_drain_and_copy_disks():
    deeds = Counter()
    for seed in range(6):
        history = CarriedHistory(seed, power=True, people=True).run()

        assert history.lost() == [], f"seed {seed}"
        deeds.update(history.deeds)

    assert len(deeds) > 20


@pytest.mark.parametrize(
    ("seed", "replicas"),
    [
        # A data path is copied with what lies in it of others.
        (1500259, 1),
        # A home comes back whose log a keeper has handed on.
        (1720019, 2),
        # What was handed over is done with, and a successor has an older copy of it.
        (2000223, 1),
        # A keeper that had drained leaves all to one that was appointed since, whose disk is lost then.
        (3002856, 1),
        (3003851, 1),
        # A taker is lost before it has copies of its own.
        (4300294, 2),
        # A topic that is paused at home was deleted at its keeper.
        (5001833, 1),
        # A copy that was never whole is above one that knows who is owed it.
        (4007930, 1),
        # All topics of a node are deleted while it is handed over; and of one of which a copy goes on.
        (3002802, 1),
        (3003536, 1),
    ],
)
def test_what_other_histories_found_stays_mended(seed, replicas):
    assert CarriedHistory(seed, power=True, people=True, replicas=replicas).run().lost() == []


def test_no_message_that_was_answered_with_ok_is_lost_in_a_power_cut():
    finished = 0
    # In the first a home loses the end of its log, and lets go of the file before it meets its keeper again.
    # In the last it loses some of the middle.
    for seed in (7077, 7078, 300401):
        history = CarriedHistory(seed, power=True).run()

        assert history.lost() == [], f"seed {seed}"
        finished += sum(map(len, history.told.done.values()))

    assert finished > 100
