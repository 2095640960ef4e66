"""The load profile at its full length: calm, and with an nsqd killed in the middle."""

import pytest

from tests.load import smoke

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_under_load_every_acknowledged_message_is_received_once(tmp_path):
    figures = smoke.run(tmp_path)
    print(figures)

    assert figures.fault(killed=False) is None


@pytest.mark.chaos
def test_no_acknowledged_message_is_missing_when_a_nsqd_is_killed_under_load(tmp_path):
    figures = smoke.run(tmp_path, kill=True)
    print(figures)

    assert figures.fault(killed=True) is None
