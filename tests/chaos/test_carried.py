"""A short run of the histories of several nodes; `python -m tests.campaign.carried histories` is the long one."""

import pytest

from tests.campaign.carried.histories import CarriedHistory

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_no_message_that_was_answered_with_ok_is_lost(first):
    finished = carried = 0
    for seed in range(first, first + 10):
        history = CarriedHistory(seed).run()

        assert history.lost() == [], f"seed {seed}"
        finished += sum(map(len, history.told.done.values()))
        carried += history.told.carried

    # They do what they are about.
    assert finished > 200
    assert carried > 10
