"""The answers of auth servers: the accepted answers, the refused answers, and their permissions."""

import json

import pytest

from nsqd.protocol.auth import PUBLISH, SUBSCRIBE, BadAnswer, parse_authorizations

NOW_NS = 1_700_000_000_000_000_000
GRANT = {"topic": ".*", "channels": [".*"], "permissions": ["subscribe", "publish"]}


def parse(**fields):
    answer = {"ttl": 60, "identity": "me", "identity_url": "http://me", "authorizations": [GRANT]}
    return parse_authorizations(json.dumps(answer | fields).encode(), NOW_NS)


def grant(**fields):
    return parse(authorizations=[GRANT | fields])


def test_answer_names_client_and_ends_with_its_ttl():
    found = parse(ttl=7)

    assert (found.identity, found.identity_url) == ("me", "http://me")
    assert found.expires_ns == NOW_NS + 7_000_000_000
    assert json.loads(found.to_json()) == {
        "identity": "me",
        "identity_url": "http://me",
        "permission_count": 1,
    }
    assert list(json.loads(found.to_json())) == ["identity", "identity_url", "permission_count"]


def test_keys_are_read_in_any_letter_case_and_unknown_ones_are_ignored():
    found = parse_authorizations(b'{"TTL":1,"Authorizations":[{"Topic":"t"}],"more":{}}', NOW_NS)

    assert len(found.grants) == 1


@pytest.mark.parametrize("fields", [{}, {"authorizations": None}, {"authorizations": []}])
def test_answer_may_grant_nothing(fields):
    answer = {"ttl": 1, **fields}
    assert parse_authorizations(json.dumps(answer).encode(), NOW_NS).grants == ()


@pytest.mark.parametrize(
    "body",
    [b"", b"no", b"[]", b"null", b'"x"', b"{}", b'{"ttl":1', b'{"ttl":NaN}', b"[" * 100_000],
)
def test_bad_auth_answer_is_refused(body):
    with pytest.raises(BadAnswer):
        parse_authorizations(body, NOW_NS)


@pytest.mark.parametrize(
    "fields",
    [
        {"ttl": 0},
        {"ttl": -1},
        {"ttl": None},
        {"ttl": "60"},
        {"ttl": 60.0},
        {"ttl": True},
        {"identity": 1},
        {"identity_url": []},
        {"authorizations": {}},
        {"authorizations": ["x"]},
        {"authorizations": [GRANT | {"topic": 1}]},
        {"authorizations": [GRANT | {"topic": "("}]},
        {"authorizations": [GRANT | {"topic": "(?=x)"}]},
        {"authorizations": [GRANT | {"channels": "c"}]},
        {"authorizations": [GRANT | {"channels": [1]}]},
        {"authorizations": [GRANT | {"channels": ["["]}]},
        {"authorizations": [GRANT | {"permissions": ["admin"]}]},
        {"authorizations": [GRANT | {"permissions": "publish"}]},
        {"authorizations": [GRANT, GRANT | {"permissions": ["Publish"]}]},
    ],
)
def test_auth_answer_with_wrong_field_is_refused(fields):
    with pytest.raises(BadAnswer):
        parse(**fields)


def test_topic_pattern_may_match_anywhere_in_name():
    found = grant(topic="o")

    assert found.allows(SUBSCRIBE, "foo", "c")
    assert not found.allows(SUBSCRIBE, "bar", "c")


@pytest.mark.parametrize(("channels", "allowed"), [([], False), (["^c$"], False), (["x", ""], True)])
def test_publish_needs_channel_pattern_that_matches_nothing(channels, allowed):
    assert grant(channels=channels).allows(PUBLISH, "t", "") is allowed


def test_grants_are_alternatives():
    found = parse(
        authorizations=[
            {"topic": "^a$", "channels": ["^c$"], "permissions": ["subscribe"]},
            {"topic": "^b$", "channels": [""], "permissions": ["publish"]},
        ]
    )

    assert found.allows(SUBSCRIBE, "a", "c")
    assert found.allows(PUBLISH, "b", "")
    assert not found.allows(PUBLISH, "a", "")
    assert not found.allows(SUBSCRIBE, "a", "other")


def test_ttl_of_ages_is_as_long_as_clock_goes():
    assert parse(ttl=10**30).expires_ns > NOW_NS


@pytest.mark.parametrize(
    "fields",
    [
        {"authorizations": [GRANT, GRANT | {"topic": "hush("}]},
        {"authorizations": [GRANT, GRANT | {"channels": ["[hush"]}]},
        {"authorizations": [GRANT, GRANT | {"permissions": ["hush"]}]},
        {"ttl": "hush"},
    ],
)
def test_bad_auth_answer_is_not_quoted(fields):
    with pytest.raises(BadAnswer) as failure:
        parse(**fields)

    assert "hush" not in str(failure.value)
    assert "authorization 1" in str(failure.value) or "ttl" in str(failure.value)
