import pytest

from nsqadmin.access.roles import Person, Role, RoleGrant, grants_of, parse_grant, role_of

ALICE = Person("alice", ("ops", "pay"), "header")
STRANGER = Person()
CI = Person("ci", (), "token")


def role(person, *roles, admins=(), tokens=(), signs_in=False, topic=""):
    return role_of(person, grants_of(roles, admins, tokens, signs_in=signs_in), topic)


def test_roles_without_names_allow_everything():
    assert role(STRANGER) is Role.ADMIN


def test_admins_make_all_others_viewers():
    assert role(ALICE, admins=["alice"]) is Role.ADMIN
    assert role(Person("Alice", (), "header"), admins=["alice"]) is Role.VIEWER
    assert role(STRANGER, admins=["alice"]) is Role.VIEWER


def test_user_of_token_is_not_user_of_that_name():
    assert role(Person("alice", (), "token"), admins=["alice"]) is Role.VIEWER


def test_roles_are_given_to_users_groups_and_anybody():
    assert role(ALICE, "operator:user=alice") is Role.OPERATOR
    assert role(ALICE, "reader:group=pay", "viewer:*") is Role.READER
    assert role(STRANGER, "viewer:*") is Role.VIEWER
    assert role(STRANGER, "operator:user=alice") is Role.NONE


def test_role_may_be_for_some_topics():
    roles = "viewer:*", "operator:group=pay:pay*"

    assert role(ALICE, *roles, topic="payments") is Role.OPERATOR
    assert role(ALICE, *roles, topic="orders") is Role.VIEWER
    assert role(ALICE, *roles) is Role.VIEWER


def test_tokens_have_role_of_their_own_and_take_nothing_from_others():
    tokens = [RoleGrant(Role.OPERATOR, "token", "ci")]

    assert role(CI, "viewer:*", tokens=tokens) is Role.OPERATOR
    assert role(CI, tokens=tokens) is Role.ADMIN
    assert role(STRANGER, tokens=tokens) is Role.ADMIN
    assert role(CI, admins=["alice"], tokens=tokens) is Role.OPERATOR


def test_sign_in_allows_viewing_to_known_users_only():
    assert role(STRANGER, signs_in=True) is Role.NONE
    assert role(Person("bob", (), "sign-in"), signs_in=True) is Role.VIEWER


@pytest.mark.parametrize(
    "text", ["", "boss:user=a", "admin", "admin:", "admin:alice", "admin:user=", "guest:*"]
)
def test_invalid_role_is_refused_with_sentence(text):
    with pytest.raises(ValueError, match=r"is no role|does not say whose"):
        parse_grant(text)
