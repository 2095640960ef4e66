"""Some seconds of each kind of fault; `make client-campaign` is the long run (docs/evidence/)."""

import pytest

from tests.client_campaign.faults import KINDS, Run

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


@pytest.mark.parametrize("kind", list(KINDS))
async def test_confirmed_messages_are_not_lost_and_clients_end(kind, capsys):
    run = Run(seconds=3, seed=1)
    await KINDS[kind](run)

    assert run.journal.violations() == []
    assert len(run.journal.confirmed) > 20
    assert run.journal.done or kind == "slow"
