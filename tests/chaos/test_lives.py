"""Three real nsqd are killed and lose their disks under load, and no acknowledged message is lost."""

import pytest

from tests.campaign.lives import run
from tests.support.replicated import FAILOVER_S

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(240)]


def test_acknowledged_messages_survive_kills_and_lost_disks(tmp_path):
    outcome = run(tmp_path / "cluster", 6, 3)

    assert outcome.lost == []
    assert outcome.tracebacks == []
    assert outcome.published > 1000
    assert all(seconds <= FAILOVER_S + 1.5 for seconds in outcome.takeovers)
