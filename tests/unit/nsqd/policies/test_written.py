import json

import pytest

from nsqd.policies.definition import BadPolicy
from nsqd.policies.written import from_json, from_toml, listed, to_json

FILE = """
[policies.orders]
topic = "^orders$"
priority = 10
definition = { max_depth = 100_000, when_full = "drop-oldest" }

[policies.poison]
topic = ".*"
channel = "^billing"
[policies.poison.definition]
max_attempts = 5
"""


def test_file_of_operator_is_read():
    orders, poison = from_toml(FILE)

    assert (orders.name, orders.priority, orders.settings.max_depth) == ("orders", 10, 100_000)
    assert (poison.name, poison.channel, poison.settings.max_attempts) == ("poison", "^billing", 5)


def test_empty_file_has_no_policies():
    assert from_toml("") == []
    assert from_toml("# none yet\n[policies]") == []


def test_policies_written_as_json_are_read_again():
    policies = from_toml(FILE)

    again = from_json(to_json(policies))

    assert [listed(policy) for policy in again] == [listed(policy) for policy in policies]


def test_answer_of_one_node_is_understood_by_another():
    (orders, _) = from_toml(FILE)

    (again,) = from_json(
        json.dumps({"digest": "x", "policies": [{**listed(orders), "from": "file"}]}).encode()
    )

    assert listed(again) == listed(orders)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[policies.a", "it is no TOML"),
        ("a = 5", "there is no 'a' in a file of policies"),
        ("[policy.a]\ntopic = 't'", "there is no 'policy'"),
        ("policies = 5", "must be tables"),
        ("[policies]\na = 5", "policy a: it must be a table"),
        ("[policies.a]\ntopic = 't'\ndefinition = { max_dept = 5 }", "did you mean max_depth?"),
        ("[policies.a]\ntopic = 't'\ndefinition = { ttl = 2020-01-01 }", "ttl is no duration"),
    ],
)
def test_file_that_cannot_be_used_is_refused_with_sentence(text, sentence):
    with pytest.raises(BadPolicy) as refused:
        from_toml(text)

    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "it is no JSON"),
        (b"\xff", "it is no JSON"),
        (b"[" * 100_000, "it is no JSON"),
        (b"[]", "a list of policies is written"),
        (b"{}", "a list of policies is written"),
        (b'{"policies": {}}', "a list of policies is written"),
        (b'{"policies": [5]}', "needs its name"),
        (b'{"policies": [{"topic": "t"}]}', "needs its name"),
        (
            (
                b'{"policies": [{"name": "a", "topic": "t", "definition": {"ttl": "1h"}},'
                b' {"name": "a", "topic": "u", "definition": {"ttl": "1h"}}]}'
            ),
            "policy a is there twice",
        ),
    ],
)
def test_list_that_cannot_be_used_is_refused_with_sentence(text, sentence):
    with pytest.raises(BadPolicy) as refused:
        from_json(text)

    assert sentence in str(refused.value)
