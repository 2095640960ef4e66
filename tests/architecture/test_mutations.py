"""The list of mutations follows the code: each can be applied, and has a unique name."""

from pathlib import Path

from tests.campaign.mutations.catalogue import MUTATIONS

ROOT = Path(__file__).parents[2]


def test_each_mutation_can_be_applied_to_the_code_as_it_is():
    assert [reason for one in MUTATIONS if (reason := one.why_stale(ROOT))] == []


def test_each_mutation_has_its_own_name_and_something_that_catches_it():
    assert len({one.name for one in MUTATIONS}) == len(MUTATIONS)
    assert [one.name for one in MUTATIONS if not one.caught_by and not one.equivalent] == []
