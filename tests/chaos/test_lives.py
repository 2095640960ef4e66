"""Three real nsqd under load, for two lives; `make lives` is the long run."""

import pytest
from tests.campaign.lives import run

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(180)]


def test_nothing_that_was_answered_is_lost_in_lives_that_end_by_kill_9(tmp_path):
    trio, lost = run(0, 3, tmp_path)

    assert lost == []
    assert len(trio.ledger.answered) > 50
