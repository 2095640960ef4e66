"""Each campaign on the simulated disk finds no violation in some seconds; `make campaign` is the long run."""

from collections import Counter

import pytest

from tests.campaign.campaigns import run, seeds_for
from tests.campaign.crashes import crash_everywhere
from tests.campaign.ledger import Deed, Ledger, shortfalls
from tests.campaign.node import DATA
from tests.campaign.played import play
from tests.campaign.profiles import PROFILES
from tests.campaign.replication.counted import MIN_PER_1000
from tests.campaign.replication.counted import shortfalls as few_events
from tests.campaign.replication.histories import PROFILES as REPLICATION
from tests.campaign.replication.staged import STAGES
from tests.campaign.replication.staged import run as run_replication
from tests.campaign.replication.without import PARTS, left_out
from tests.campaign.result import Result
from tests.support.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize(
    ("campaign", "first", "seconds", "states"),
    [
        # The first seed, the seconds of processor time, and the states of the first seed at least.
        # Seed 17 finds dead letters whose originals are finished before they are durable.
        ("power-cut", 17, 4, 600),
        ("kill", 6, 2, 200),
        ("failed-call", 9, 3, 400),
        ("second-crash", 9, 3, 400),
        ("calls", 4, 4, 40),
        ("reads", 4, 3, 20),
        ("bits", 3, 3, 60),
        ("replication", 0, 8, 2),
    ],
)
def test_campaign_finds_no_violation_in_its_share_of_time(campaign, first, seconds, states):
    result = Result()
    for seed in seeds_for(seconds, first):
        for strict in (True, False):
            result.add(run(campaign, seed, strict=strict))

    assert not result.violations, "\n\n".join(result.violations[:3])
    assert result.states >= states


@pytest.mark.parametrize("profile", [*REPLICATION, *STAGES])
def test_replication_finds_no_violation_in_each_profile(profile):
    for seed in range(3):
        _, violations = run_replication(profile, seed)

        assert violations == []


def test_replication_that_saw_too_little_fails():
    assert any("failover" in text for text in few_events(Counter(), 1000))
    assert few_events(Counter(MIN_PER_1000), 1000) == []


@pytest.mark.parametrize("part", PARTS)
def test_replication_without_part_is_found_out(part):
    for seed in range(20):
        with left_out(part):
            if run_replication(PARTS[part].history, seed)[1]:
                return
    pytest.fail(f"no history fails without {PARTS[part].text!r}")


def test_workloads_cover_campaign_subjects():
    ledger: Ledger = Counter()
    for seed in range(1, 61):
        ledger += play(seed, strict=bool(seed // len(PROFILES) % 2)).ledger
    # Crashes are not examined here, so their counts are set as reached.
    crashes = (Deed.STATES, Deed.DEFERRED_CARRIED)
    ledger.update(dict.fromkeys(crashes, 1_000_000))

    assert shortfalls("kill", ledger) == []


def test_run_that_did_too_little_fails():
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
def test_disk_with_false_promises_is_detected(disk, campaign):
    result = crash_everywhere(play(37, strict=True, disk=disk(DATA)), campaign)

    assert any("lost" in text or "gone" in text for text in result.violations)
