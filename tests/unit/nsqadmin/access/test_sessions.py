import pytest

from nsqadmin.access.openid import local_path
from nsqadmin.access.roles import Person
from nsqadmin.access.sessions import Sessions, Signer

ALICE = Person("alice", ("ops",), "sign-in")
SIGNER = Signer(lambda: b"s" * 32)


def test_session_is_good_until_it_is_over():
    sessions = Sessions(SIGNER, lasts_s=100)
    cookie = sessions.create("1", ALICE, 1000)

    assert sessions.person(cookie, 1099) == ALICE
    assert sessions.person(cookie, 1101) is None


def test_session_that_was_ended_is_ended_wherever_its_cookie_was_copied_to():
    sessions = Sessions(SIGNER, lasts_s=100)
    cookie, other = sessions.create("1", ALICE, 1000), sessions.create("2", ALICE, 1000)

    sessions.end(cookie, 1001)

    assert sessions.person(cookie, 1002) is None
    assert sessions.person(other, 1002) == ALICE


def test_session_that_was_ended_stays_ended_when_clock_is_set_back():
    sessions = Sessions(SIGNER, lasts_s=100)
    cookie = sessions.create("1", ALICE, 1000)
    sessions.end(cookie, 1001)

    # The clock is wrong for a while, and another user signs out then.
    sessions.end(sessions.create("2", ALICE, 90_000), 90_001)

    assert sessions.person(cookie, 1002) is None


def test_signed_value_is_bound_to_secret_and_purpose():
    sessions = Sessions(SIGNER, lasts_s=100)
    cookie = sessions.create("1", ALICE, 1000)
    body, _, signature = cookie.partition(".")

    assert Sessions(Signer(lambda: b"t" * 32), 100).person(cookie, 1001) is None
    assert sessions.person(f"{body}x.{signature}", 1001) is None
    assert sessions.person(body, 1001) is None
    assert sessions.person("é.x", 1001) is None
    assert SIGNER.read("sign-in", cookie, 1001) is None


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("/topics/a?q=b", "/topics/a?q=b"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example/", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
        ("/\tevil", "/"),
        ("/ok\n/x", "/"),
    ],
)
def test_sign_in_leads_to_places_of_our_own_only(text, place):
    assert local_path(text, "/") == place
