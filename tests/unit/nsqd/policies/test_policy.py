import pytest

from nsqd.engine.settings import NOTHING
from nsqd.policies.definition import BadPolicy
from nsqd.policies.policy import MAX_POLICIES, Policy, PolicySet


def policy(name, topic=".*", channel="", priority=0, **definition):
    said = {"topic": topic, "channel": channel, "priority": priority}
    return Policy(name, said | {"definition": definition or {"max_depth": 5}})


def test_highest_priority_counts_alone():
    both = PolicySet([policy("low", ttl="1h"), policy("high", priority=1, max_depth=7)])

    found = both.settings_for("orders", "billing")
    assert (found.max_depth, found.ttl_ns) == (7, 0)
    assert both.in_force("orders", "").name == "high"


def test_policies_of_equal_priority_count_by_name():
    assert PolicySet([policy("b"), policy("a")]).in_force("t", "").name == "a"


def test_pattern_may_match_anywhere_in_name():
    found = PolicySet([policy("p", topic="rder"), policy("q", topic="^bill")])

    assert found.in_force("orders", "").name == "p"
    assert found.in_force("unbilled", "") is None
    assert found.in_force("billed", "").name == "q"


def test_policy_with_channel_pattern_is_about_no_topic():
    found = PolicySet([policy("c", channel="^billing$", priority=9), policy("t", max_depth=1)])

    assert found.in_force("orders", "").name == "t"
    assert found.in_force("orders", "billing").name == "c"
    assert found.in_force("orders", "other").name == "t"


def test_topics_without_policy_share_settings():
    found = PolicySet([policy("p", topic="^orders$")])

    assert found.settings_for("other", "") is NOTHING
    assert found.settings_for("other", "c") is NOTHING
    assert PolicySet().settings_for("t", "") is NOTHING


def test_two_nodes_with_the_same_policies_have_the_same_digest():
    one, two = policy("a", max_depth=1), policy("b", ttl="1h", max_depth=2)

    assert PolicySet([one, two]).digest() == PolicySet([two, one]).digest()
    assert PolicySet([one]).digest() != PolicySet([one, two]).digest()
    assert PolicySet([policy("a", max_depth=1)]).digest() != PolicySet([policy("a", max_depth=2)]).digest()


def test_policy_survives_json():
    one = policy("a", topic="^t", channel="c", priority=-3, ttl="1h")

    again = Policy("a", one.to_json())

    assert again.to_json() == one.to_json()
    assert again.settings == one.settings


@pytest.mark.parametrize(
    ("name", "said", "sentence"),
    [
        ("", {}, "a name is 1 to 64"),
        ("a b", {}, "a name is 1 to 64"),
        (5, {}, "a name is 1 to 64"),
        ("p", [], "must be a table"),
        ("p", {"definition": {"ttl": "1h"}}, "topic is missing"),
        ("p", {"topic": "t"}, "definition is missing"),
        ("p", {"topic": "t", "definition": {}}, "says nothing"),
        ("p", {"topic": "t", "max_depth": 5}, "belong into its definition"),
        ("p", {"topic": "(", "definition": {"ttl": "1h"}}, "topic is no pattern: missing )"),
        ("p", {"topic": 5, "definition": {"ttl": "1h"}}, "topic must be a pattern"),
        ("p", {"topic": "t", "channel": "[", "definition": {"ttl": "1h"}}, "channel is no pattern"),
        ("p", {"topic": "t", "channel": 5, "definition": {"ttl": "1h"}}, "channel must be a pattern"),
        ("p", {"topic": "t", "priority": "high", "definition": {"ttl": "1h"}}, "priority must be"),
        ("p", {"topic": "t", "priority": 1 << 40, "definition": {"ttl": "1h"}}, "out of range"),
        (
            "p",
            {"topic": "t", "channel": "c", "definition": {"retain_time": "1h"}},
            "about a topic",
        ),
    ],
)
def test_bad_policy_is_refused_with_sentence(name, said, sentence):
    with pytest.raises(BadPolicy) as refused:
        Policy(name, said)

    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_policies_are_limited_in_number():
    said = {f"p{n}": {"topic": "t", "definition": {"ttl": "1h"}} for n in range(MAX_POLICIES + 1)}

    with pytest.raises(BadPolicy, match=f"can be {MAX_POLICIES} policies"):
        PolicySet([Policy(name, one) for name, one in said.items()])
