"""A minute of the campaigns on the simulated disk; `make campaign` is the long run. docs/reliability.md"""

import pytest

from tests.campaign.campaigns import CAMPAIGNS
from tests.campaign.crashes import Tally, crash_everywhere
from tests.campaign.node import DATA
from tests.campaign.played import play
from tests.support.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "default"])
@pytest.mark.parametrize(
    ("campaign", "seed", "every", "states"),
    [
        ("power-cut", 23, 1, 500),
        ("power-cut", 35, 1, 300),
        ("kill", 23, 1, 150),
        ("kill", 35, 1, 100),
        # A channel is made from the earliest while a compaction runs.
        ("kill", 5, 1, 150),
        ("calls", 4, 40, 20),
        ("reads", 4, 9, 10),
        ("bits", 3, 97, 30),
    ],
)
def test_no_promise_is_broken(campaign, seed, every, states, strict):
    result = CAMPAIGNS[campaign](seed, strict=strict, every=every)

    assert not result.violations, "\n\n".join(result.violations[:3])
    assert result.states >= states


class LyingDisk(SimulatedDisk):
    """Says of files that they are synced, and does nothing."""

    def sync(self, fd):
        self._call("sync", self._entry(fd).path)


class ForgetfulDisk(SimulatedDisk):
    """Says of folders that they are synced, and does nothing."""

    def sync_folder(self, path):
        self._call("sync_folder", path)


class MuteDisk(SimulatedDisk):
    """Takes every third append of a log, and drops the others."""

    def append(self, fd, pieces):
        if len(self.calls) % 3 == 0:
            super().append(fd, pieces)


@pytest.mark.parametrize(
    ("disk", "campaign"), [(LyingDisk, "power-cut"), (ForgetfulDisk, "power-cut"), (MuteDisk, "kill")]
)
def test_a_disk_that_does_not_do_what_it_says_is_found_out(disk, campaign):
    tally = Tally()
    crash_everywhere(play(37, strict=True, disk=disk(DATA)), campaign, tally)

    assert any("lost" in text or "gone" in text for one in tally.violations for text in one.texts)
