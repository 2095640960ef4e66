"""A minute of the campaigns on the simulated disk; `make campaign` is the long run. docs/reliability.md"""

from collections import Counter

import pytest

from tests.campaign.campaigns import CAMPAIGNS
from tests.campaign.crashes import crash_everywhere
from tests.campaign.ledger import Deed, Ledger, shortfalls
from tests.campaign.node import DATA
from tests.campaign.played import play
from tests.campaign.profiles import PROFILES
from tests.support.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "default"])
@pytest.mark.parametrize(
    ("campaign", "seed", "every", "states"),
    [
        # One seed of each kind of workload.
        ("power-cut", 3, 1, 300),
        ("power-cut", 4, 2, 300),
        ("power-cut", 5, 1, 300),
        ("kill", 6, 1, 100),
        ("kill", 7, 1, 200),
        ("kill", 8, 1, 100),
        ("failed-call", 9, 1, 200),
        ("failed-call", 10, 1, 200),
        ("second-crash", 9, 1, 200),
        ("second-crash", 10, 1, 200),
        ("calls", 4, 40, 20),
        ("reads", 4, 8, 10),
        ("bits", 3, 97, 30),
    ],
)
def test_no_promise_is_broken(campaign, seed, every, states, strict):
    result = CAMPAIGNS[campaign](seed, strict=strict, every=every, only="")

    assert not result.violations, "\n\n".join(result.violations[:3])
    assert result.states >= states


def test_workloads_do_what_the_campaigns_are_about():
    ledger: Ledger = Counter()
    for seed in range(1, 61):
        ledger += play(seed, strict=bool(seed // len(PROFILES) % 2)).ledger
    # Crashes are not examined here, so their counts are set as reached.
    crashes = (Deed.STATES, Deed.DEFERRED_CARRIED)
    ledger.update(dict.fromkeys(crashes, 1_000_000))

    assert shortfalls("kill", ledger) == []


def test_a_run_that_did_too_little_fails():
    ledger: Ledger = Counter({Deed.WORKLOADS: 100})

    missing = shortfalls("kill", ledger)

    assert any("compactions finished" in text for text in missing)


class LyingDisk(SimulatedDisk):
    """Reports files as synced without syncing them."""

    def sync(self, fd):
        self._call("sync", self._entry(fd).path)


class ForgetfulDisk(SimulatedDisk):
    """Reports folders as synced without syncing them."""

    def sync_folder(self, path):
        self._call("sync_folder", path)


class MuteDisk(SimulatedDisk):
    """Performs every third append of a log and drops the others."""

    def append(self, fd, pieces):
        if len(self.calls) % 3 == 0:
            super().append(fd, pieces)


@pytest.mark.parametrize(
    ("disk", "campaign"), [(LyingDisk, "power-cut"), (ForgetfulDisk, "power-cut"), (MuteDisk, "kill")]
)
def test_a_disk_that_does_not_do_what_it_says_is_found_out(disk, campaign):
    result = crash_everywhere(play(37, strict=True, disk=disk(DATA)), campaign)

    assert any("lost" in text or "gone" in text for text in result.violations)
