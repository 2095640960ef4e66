"""Which policy is in force where and why, and the effects of a change."""

import pytest

from nsqadmin.stats.policies import PolicyRule, PolicyRules, governed, rule_changes, subject_changes
from nsqd.policies.policy import Policy, PolicySet

PLACES = [("orders", ""), ("orders", "billing"), ("orders", "mail"), ("pay", ""), ("pay", "billing")]


def rule(name, topic, channel="", priority=0, **definition):
    return PolicyRule(name, topic, channel, priority, definition)


RULES = [
    rule("all", ".*", max_depth=5),
    rule("bills", ".*", "^bill", 10, ttl="1h"),
    rule("b", "^orders$", priority=5, ttl="2h"),
    rule("a", "^orders$", priority=5, ttl="3h"),
]


@pytest.mark.parametrize(("topic", "channel"), PLACES)
def test_same_counts_as_in_nsqd(topic, channel):
    theirs = PolicySet(
        Policy(one.name, {k: v for k, v in one.to_json().items() if k != "name"}) for one in RULES
    )

    counts = PolicyRules(RULES).in_force(topic, channel)

    assert counts.name == theirs.in_force(topic, channel).name


def test_matching_policies_are_listed_and_first_counts():
    assert [one.name for one in PolicyRules(RULES).matching("orders", "billing")] == [
        "bills",
        "a",
        "b",
        "all",
    ]


def test_invalid_pattern_matches_nothing():
    told = {"name": "odd", "topic": "(", "priority": "high", "definition": None}

    assert PolicyRules([PolicyRule.of(told)]).in_force("orders", "") is None


def test_change_is_shown_field_by_field():
    before = PolicyRules(RULES)
    after = before.with_rule(rule("all", ".*", priority=1, max_depth=6, ttl="1h")).without("b")

    changes = {one.name: one for one in rule_changes(before, after)}

    assert {name: one.word for name, one in changes.items()} == {"all": "changed", "b": "deleted"}
    other = {one.key: (one.before, one.after) for one in changes["all"].fields if one.is_other}
    assert other == {"priority": (0, 1), "definition.max_depth": (5, 6), "definition.ttl": (None, "1h")}


def test_subject_changes_list_other_policies_in_force():
    before = PolicyRules(RULES)
    after = before.without("a")

    changes = subject_changes(before, after, PLACES)

    assert [(one.subject, one.before, one.after) for one in changes] == [
        ("orders", "a", "b"),
        ("orders/mail", "a", "b"),
    ]
    assert subject_changes(before, before.with_rule(rule("new", "^nothing$", ttl="1h")), PLACES) == []


def test_policy_preview_names_its_scope():
    assert governed(PolicyRules(RULES), PLACES) == {
        "a": [("orders", ""), ("orders", "mail")],
        "bills": [("orders", "billing"), ("pay", "billing")],
        "all": [("pay", "")],
    }


def test_policies_from_file_stay_when_others_are_copied():
    own = PolicyRule("all", ".*", "", 0, {"ttl": "1h"}, in_file=True)
    node = PolicyRules([own, rule("old", "x")])

    copied = node.copied_from(PolicyRules(RULES))

    assert copied.named("all") is own
    assert sorted(one.name for one in copied) == ["a", "all", "b", "bills"]
