"""Three real nsqd under load, for a few lives; `python -m tests.campaign.lives 100` is the long run."""

import pytest
from tests.campaign.lives import run

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(180)]


def test_nothing_that_was_answered_is_lost_in_lives_that_end_by_kill_9(tmp_path):
    trio, lost = run(2, 3, tmp_path)

    assert lost == []
    assert len(trio.ledger.answered) > 50
