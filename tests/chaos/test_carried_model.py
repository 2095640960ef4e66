"""The rules of carried logs: nothing is lost with all of them, and each one is needed. docs/replication.md"""

import pytest

from tests.campaign.carried.model import RULES, losses

pytestmark = pytest.mark.chaos

# rule -> the seed of a history that loses a message without it
LOST_WITHOUT = {
    "had": 7,
    "here": 278,
    "generation": 23997,
    "adopt": 0,
    "note": 1309,
    "held": 7,
    "linked": 15,
    "checkpoint": 190,
    "again": 236,
    "aside": 7,
    "older": 32,
    "whole": 8,
    "durable": 25,
    "spare": 7,
}
# The rules about a home that is handed over.
OF_LEAVING = frozenset(("whole", "durable", "spare"))


def test_with_all_the_rules_nothing_is_lost():
    assert list(losses(range(1500))) == []


def test_of_homes_that_are_handed_over_nothing_is_lost_either():
    assert list(losses(range(500), leaves=True)) == []


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule):
    seed = LOST_WITHOUT[rule]

    leaves = rule in OF_LEAVING
    assert list(losses(range(seed, seed + 1), frozenset({rule}), leaves=leaves))
    assert not list(losses(range(seed, seed + 1), leaves=leaves))
