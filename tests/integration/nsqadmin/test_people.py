"""The rights of users: sign-in, tokens and roles, on every route."""

import hashlib
import json
import time
from contextlib import asynccontextmanager

import aiohttp
import pytest
from joserfc.jwk import RSAKey

from devcluster.provider import LocalPerson, provider
from tests.support.stub_site import stub_site

TOPIC = "topic.0001.events"
ALICE = LocalPerson("alice", ("ops",))
API_READS = [
    "/api/topics",
    f"/api/topics/{TOPIC}",
    "/api/nodes",
    "/api/counter",
    "/metrics",
    "/config/log_level",
    "/history",
    "/topics?format=json",
]
WRITES = [
    ("POST", "/api/topics", {"topic": "new"}),
    ("POST", f"/api/topics/{TOPIC}", {"action": "pause"}),
    ("POST", f"/api/topics/{TOPIC}/billing", {"action": "empty"}),
    ("DELETE", f"/api/topics/{TOPIC}/billing", None),
    ("DELETE", f"/api/topics/{TOPIC}", None),
    ("DELETE", "/api/nodes/NODE", {"topic": TOPIC}),
    ("PUT", "/config/log_level", "info"),
]


@asynccontextmanager
async def signing_in(tmp_path, **options):
    (tmp_path / "secret").write_text("shared secret")
    async with (
        provider("shared secret", [ALICE]) as one,
        stub_site(
            oidc_issuer=one.issuer,
            oidc_client_id="nsqadmin",
            oidc_client_secret_file=str(tmp_path / "secret"),
            **options,
        ) as site,
    ):
        yield one, site


def cookie_of(reply, name):
    found = [text for text in reply.headers.getall("Set-Cookie", []) if text.startswith(f"{name}=")]
    return found[-1] if found else ""


async def sign_in(site, path="/sign-in", *, session=""):
    """Go to the provider and back as a browser does; return the answer to the last request."""
    begun = await site.get(path)
    assert begun.status == 303, begun.text
    attempt = cookie_of(begun, "nsqadmin_sign_in").partition(";")[0]
    async with (
        aiohttp.ClientSession() as http,
        http.get(begun.headers["Location"], allow_redirects=False) as reply,
    ):
        back = reply.headers["Location"]
    path = back.partition("//")[2].partition("/")[2]
    return await site.get(f"/{path}", Cookie="; ".join(filter(None, (attempt, session))))


async def write(site, method, path, body, **headers):
    text = body if isinstance(body, str) or body is None else json.dumps(body)
    return (await site.ask(method, path.replace("NODE", site.address(0)), text, **headers)).status


async def test_browser_without_session_is_redirected_and_program_gets_401(tmp_path):
    async with signing_in(tmp_path) as (one, site):
        page = await site.get("/audit?page=2")
        assert (page.status, page.headers["Location"]) == (303, "/sign-in?next=/audit%3Fpage%3D2")
        for path in (*API_READS, "/nosuch", "/nosuch?format=json", "/api/nosuch"):
            assert (await site.get(path)).status == 401, path
        assert (await site.get("/nosuch", Accept="text/html")).status == 303
        assert (await site.get("/ping")).status == 200
        assert (await site.get("/static/admin.css")).status == 200
        begun = await site.get("/sign-in")

    assert begun.headers["Location"].startswith(f"{one.issuer}/authorize?")
    assert "code_challenge_method=S256" in begun.headers["Location"]


async def test_sign_in_leads_to_wanted_page_with_rights_of_groups(tmp_path):
    roles = ("viewer:group=dev", "operator:group=ops", "admin:user=root")
    async with signing_in(tmp_path, roles=roles) as (one, site):
        done = await sign_in(site, f"/sign-in?next=/topics/{TOPIC}")
        cookie = cookie_of(done, "nsqadmin_session")
        session = {"Cookie": cookie.partition(";")[0]}
        page = await site.get(f"/topics/{TOPIC}", **session)
        statuses = [await write(site, *one_write, **session) for one_write in WRITES]
        audit = await site.get("/audit", **session)
        followed = await site.get("/audit", Accept="text/html", **session)

        one.people = [LocalPerson("root", ("ops",))]
        root = {"Cookie": cookie_of(await sign_in(site), "nsqadmin_session").partition(";")[0]}
        entries = (await site.get("/audit?format=json", **root)).json()["changes"]

    assert (done.status, done.headers["Location"]) == (303, f"/topics/{TOPIC}")
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "Signed in as alice" in page.text
    assert "Pause" in page.text
    assert "Delete" not in page.text
    assert statuses == [200, 200, 200, 403, 403, 403, 403]
    assert (audit.status, audit.json()) == (403, {"message": "FORBIDDEN"})
    assert followed.status == 403
    assert "You have no role for this." in followed.text
    assert {(entry["user"], entry["via"]) for entry in entries} == {("alice", "sign-in")}


async def test_session_and_its_copies_end_with_sign_out(tmp_path):
    async with signing_in(tmp_path) as (_, site):
        session = cookie_of(await sign_in(site), "nsqadmin_session").partition(";")[0]
        assert (await site.get("/", Cookie=session)).status == 200

        foreign = await site.submit("/sign-out", {"Cookie": session, "Sec_Fetch_Site": "cross-site"})
        assert (await site.get("/", Cookie=session)).status == 200
        out = await site.submit("/sign-out", {"Cookie": session})

        assert (foreign.status, out.status) == (403, 200)
        assert "You are signed out" in out.text
        assert "Signed in as" not in out.text
        assert (await site.get("/", Cookie=session)).status == 303


async def test_secrets_are_reloaded_and_end_all_sessions(tmp_path):
    signs = tmp_path / "session-secret"
    signs.write_text("a" * 32)
    async with signing_in(tmp_path, session_secret_file=str(signs)) as (one, site):
        session = cookie_of(await sign_in(site), "nsqadmin_session").partition(";")[0]
        one._client_secret = "new secret"
        refused = await sign_in(site)
        (tmp_path / "secret").write_text("new secret")
        exchanged = await sign_in(site)
        before = await site.get("/", Cookie=session)
        signs.write_text("b" * 33)
        after = await site.get("/", Cookie=session)
        again = cookie_of(await sign_in(site), "nsqadmin_session").partition(";")[0]
        signed_in = await site.get("/", Cookie=again)
        (tmp_path / "secret").unlink()
        unreadable = await sign_in(site)

    assert "The provider answers with 400." in refused.text
    assert exchanged.status == 303
    assert (before.status, after.status, signed_in.status) == (200, 303, 200)
    assert (unreadable.status, "cannot be read" in unreadable.text) == (403, True)
    # The path is for the log alone.
    assert "secret for the provider cannot be read. (cannot read the secret of the client - open " in site.log
    assert str(tmp_path) not in unreadable.text


async def test_user_header_is_ignored_with_sign_in(tmp_path):
    async with signing_in(tmp_path, admin_users=("root",)) as (_, site):
        spoofed = {"X_Forwarded_User": "root"}
        seen = (await site.get("/audit", **spoofed)).status
        statuses = [await write(site, *one, **spoofed) for one in WRITES]
        cookie = cookie_of(await sign_in(site), "nsqadmin_session").partition(";")[0]
        raised = await site.get("/audit", Cookie=cookie, **spoofed)
        nonsense = await site.get("/topics", Cookie="nsqadmin_session=a.\udcff")

    assert seen == 303
    assert set(statuses) == {401}
    assert raised.status == 403
    assert nonsense.status == 303


async def test_session_from_before_sign_in_ends(tmp_path):
    async with signing_in(tmp_path) as (one, site):
        planted = cookie_of(await sign_in(site), "nsqadmin_session").partition(";")[0]
        one.people = [LocalPerson("bob", ("ops",))]
        mine = cookie_of(await sign_in(site, session=planted), "nsqadmin_session").partition(";")[0]

        assert mine != planted
        assert (await site.get("/", Cookie=planted)).status == 303
        assert "Signed in as bob" in (await site.get("/", Cookie=mine)).text


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ({"claims": {"nonce": "other"}}, "not for us"),
        ({"claims": {"aud": "another"}}, "not for us"),
        ({"claims": {"iss": "https://evil.example"}}, "not for us"),
        ({"claims": {"exp": int(time.time()) - 3600}}, "not for us"),
        ({"signed_with": RSAKey.generate_key(2048, parameters={"kid": "first"})}, "not signed by it"),
        ({"claims": {"preferred_username": "", "sub": ""}}, "does not say who"),
    ],
)
async def test_provider_with_wrong_claims_signs_no_user_in(tmp_path, lie, said):
    async with signing_in(tmp_path) as (one, site):
        for name, value in lie.items():
            setattr(one, name, value)
        answer = await sign_in(site)

    assert answer.status == 403
    assert said in answer.text
    assert not cookie_of(answer, "nsqadmin_session")


@pytest.mark.parametrize(
    ("verified", "status"),
    [({"email_verified": True}, 303), ({"email_verified": "true"}, 303), ({}, 303)]
    + [({"email_verified": no}, 403) for no in (False, "false", None)],
)
async def test_unverified_address_signs_no_user_in(tmp_path, verified, status):
    async with signing_in(tmp_path, oidc_name_claim="email") as (one, site):
        one.claims = {"email": "alice@example.com", **verified}
        answer = await sign_in(site)

    assert answer.status == status
    assert ("has not verified the e-mail address" in answer.text) == (status == 403)


async def test_answer_for_another_browser_signs_no_user_in(tmp_path):
    async with signing_in(tmp_path) as (_, site):
        begun = await site.get("/sign-in")
        attempt = cookie_of(begun, "nsqadmin_sign_in").partition(";")[0]
        for path, cookie in (
            ("/signed-in?code=code-0&state=forged", attempt),
            ("/signed-in?code=code-0&state=forged", ""),
            ("/signed-in", attempt),
            ("/signed-in?error=access_denied", attempt),
        ):
            answer = await site.get(path, Cookie=cookie)
            assert (answer.status, cookie_of(answer, "nsqadmin_session")) == (403, ""), path


async def test_token_has_its_role_and_wrong_token_is_refused(tmp_path):
    secret = "nsq-1234"
    digest = hashlib.sha256(secret.encode()).hexdigest()
    (tmp_path / "tokens").write_text(f"ci operator {digest}\nreadonly viewer {'0' * 64}\n")
    options = {"api_token_file": str(tmp_path / "tokens"), "admin_users": ("alice",)}
    async with stub_site(**options) as site:
        token = {"Authorization": f"Bearer {secret}"}
        statuses = [await write(site, *one, **token) for one in WRITES]
        wrong = await site.get("/api/topics", Authorization="Bearer nonsense")
        entries = (await site.get("/audit?format=json", X_Forwarded_User="alice")).json()["changes"]
        # A header with a user's name is ignored if there is a token.
        both = await write(site, *WRITES[4], **token, X_Forwarded_User="alice")

    assert statuses == [200, 200, 200, 403, 403, 403, 403]
    assert (wrong.status, wrong.json()) == (401, {"message": "INVALID_TOKEN"})
    assert {(entry["user"], entry["via"]) for entry in entries} == {("ci", "token")}
    assert both == 403


@pytest.mark.parametrize("token", [{}, {"Authorization": "Bearer nsq-1234"}])
async def test_unusable_token_file_refuses_all_and_is_named(tmp_path, token):
    file = tmp_path / "tokens"
    good = f"ci operator {hashlib.sha256(b'nsq-1234').hexdigest()}\n"
    file.write_text(good)
    async with stub_site(api_token_file=str(file)) as site:
        assert (await site.get("/api/topics", **token)).status == 200
        file.write_text("nonsense\n")
        wrong = await site.get("/api/topics", **token)
        file.unlink()
        gone = await site.get("/api/topics", **token)
        page = await site.get("/", **token)
        file.write_text(good)
        again = await site.get("/api/topics", **token)

    sentence = "TOKEN_FILE_UNUSABLE: line 1 is not NAME ROLE SHA256 [TOPICS]"
    assert (wrong.status, wrong.json()) == (503, {"message": sentence})
    assert (gone.status, gone.json()) == (503, {"message": "TOKEN_FILE_UNUSABLE: No such file or directory"})
    assert page.status == 503
    assert again.status == 200


async def test_role_for_topics_covers_no_nodes_and_no_other_problems():
    async with stub_site(roles=("viewer:*", "operator:user=bob:topic.0001*")) as site:
        bob = {"X_Forwarded_User": "bob"}
        node = site.address(0)
        shared = {"topic": TOPIC, "node": node}
        node_wide = {
            action: (await site.submit(headers=bob, action=action, **shared)).status
            for action in ("drain", "undrain", "dismiss")
        }
        keys = {
            "own": f"stuck {TOPIC} billing -",
            "other": "stuck topic.0002.events billing -",
            "node": f"no-answer - - {node}",
        }
        # Dead letters name the topic that they go to, and any publisher may write that name.
        letters = await site.submit("/action", bob, action="send_back", topic=TOPIC)
        mutes = {
            whose: (await site.submit(headers=bob, action="mute", key=key, topic=TOPIC)).status
            for whose, key in keys.items()
        }

    assert set(node_wide.values()) == {403}
    assert letters.status == 403
    assert mutes == {"own": 303, "other": 403, "node": 403}


async def test_flags_of_original_give_rights_of_original():
    async with stub_site(admin_users=("alice",)) as site:
        for path in API_READS:
            assert (await site.get(path)).status == 200, path
        for method, path, body in WRITES:
            assert await write(site, method, path, body) == 403, path
            assert await write(site, method, path, body, X_Forwarded_User="alice") == 200, path


async def test_audit_has_before_after_and_result_of_each_node():
    async with stub_site(admin_users=("alice",)) as site:
        await site.get("/")
        alice = {"X_Forwarded_User": "alice"}
        await site.submit(headers=alice, action="empty", topic=TOPIC, channel="billing")
        (entry,) = (await site.get("/audit?format=json", **alice)).json()["changes"]
        csv = await site.get("/audit?format=csv&q=action:empty*", **alice)
        anonymous = await site.get("/audit")

    assert (entry["user"], entry["action"], entry["channel"], entry["ok"]) == (
        "alice",
        "empty_channel",
        "billing",
        True,
    )
    assert set(entry["results"].values()) == {"done"}
    assert "depth" in entry["before"]
    assert "depth" in entry["after"]
    assert csv.headers["Content-Type"].startswith("text/csv")
    assert csv.body.count(b"\r\n") == 2
    assert anonymous.status == 403


async def test_problems_are_series_and_can_be_muted():
    def edit(answer):
        answer["health"] = "NOK - disk full"

    async with stub_site(
        nodes=1, topics=1, before=lambda stubs: setattr(stubs.nodes[0], "edit", edit)
    ) as site:
        address = site.address(0)
        series = f'nsqadmin_problem{{channel="",node="{address}",state="unhealthy",topic=""}}'

        async def value():
            lines = (await site.get("/metrics")).html.splitlines()
            return [line.rpartition(" ")[2] for line in lines if line.startswith(series)]

        assert await site.until(value, "the problem is a series") == ["1.0"]
        page = await site.get("/")
        assert "(1) " in page.text[:40]
        done = await site.submit(action="mute", key=f"unhealthy - - {address}", node=address)
        muted = await site.get("/")

    assert done.status == 303
    assert "muted until" in muted.text
    assert muted.text.strip().startswith("Overview")
