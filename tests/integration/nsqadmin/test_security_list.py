"""Rules that hold for every route. The routes are taken from the route table, so new ones are also tested."""

import json
import re
from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest

from devcluster.provider import LocalPerson, provider
from tests.support.stub_site import stub_site

TOPIC = "topic.0001.events"
# Probes, and routes without statistics that users need before they have signed in.
FOR_ANYBODY = {"/ping", "/static/:asset", "/fonts/:asset", "/sign-in", "/signed-in", "/sign-out"}
FORM = {"Content_Type": "application/x-www-form-urlencoded"}
# For each writing route a body with which it would do something.
BODIES = {
    "/action": urlencode({"action": "pause", "topic": TOPIC, "confirmed": "yes"}),
    "/api/topics": json.dumps({"topic": "made"}),
    "/api/topics/:topic": json.dumps({"action": "pause"}),
    "/api/topics/:topic/:channel": json.dumps({"action": "pause"}),
    "/api/nodes/:node": json.dumps({"topic": TOPIC}),
    "/config/:opt": json.dumps("debug"),
}


def table(site):
    """All routes, each with a meaningful address."""
    node = site.address(0)
    found = []
    for route in site.daemon._server.http._router.routes:
        path = route.pattern.replace("*", "/nosuch")
        for name, value in {
            ":topic": TOPIC,
            ":channel": "billing",
            ":node": node,
            ":opt": "log_level",
            ":asset": "admin.css",
        }.items():
            path = path.replace(name, value)
        if path.startswith("/messages"):
            path += f"?topic={TOPIC}&channel=billing"
        if path.startswith("/action"):
            path += f"?action=pause&topic={TOPIC}"
        body = BODIES.get(route.pattern, "").replace("NODE", node) if route.method != "GET" else None
        found.append((route.method, route.pattern, path, body))
    assert len(found) > 30
    return found


def writes(site):
    return [one for one in table(site) if one[0] not in {"GET", "HEAD"} and one[1] not in FOR_ANYBODY]


async def ask(site, route, **headers):
    method, _, path, body = route
    form = FORM if body is not None and not body.startswith(("{", '"')) else {}
    return await site.ask(method, path, body, **form, **headers)


def changed(site):
    return [path for node in site.nodes for path in node.posted]


async def test_routes_refuse_requests_without_sign_in(tmp_path):
    (tmp_path / "secret").write_text("shared secret")
    async with (
        provider("shared secret", [LocalPerson("alice", ())]) as one,
        stub_site(
            oidc_issuer=one.issuer,
            oidc_client_id="nsqadmin",
            oidc_client_secret_file=str(tmp_path / "secret"),
        ) as site,
    ):
        wrong = {}
        for route in table(site):
            answer = await ask(site, route)
            led = answer.status == 303 and answer.headers["Location"].startswith("/sign-in?next=")
            if route[1] not in FOR_ANYBODY and answer.status != 401 and not led:
                wrong[route[:2]] = answer.status
        assert changed(site) == []

    assert wrong == {}


async def test_writes_refuse_viewers_and_unknown_users():
    async with stub_site(roles=("viewer:user=vera",)) as site:
        await site.get("/", X_Forwarded_User="vera")
        wrong = {}
        for route in writes(site):
            statuses = [
                (await ask(site, route, X_Forwarded_User=user)).status for user in ("vera", "mallory")
            ]
            if statuses != [403, 403]:
                wrong[route[:2]] = statuses
        assert changed(site) == []

    assert wrong == {}


@pytest.mark.parametrize(
    "foreign",
    [
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
async def test_writes_refuse_forms_of_another_site(foreign):
    async with stub_site(admin_users=("alice",)) as site:
        await site.get("/")
        wrong = {}
        for route in writes(site):
            answer = await ask(site, route, X_Forwarded_User="alice", **foreign)
            if answer.status != 403:
                wrong[route[:2]] = answer.status
        assert changed(site) == []

    assert wrong == {}


async def test_routes_but_probes_refuse_foreign_host_name():
    # After DNS rebinding, the browser says that the request is of the same origin.
    rebound = {"Host": "evil.example", "Origin": "http://evil.example", "Sec_Fetch_Site": "same-origin"}
    async with stub_site() as site:
        answers = {route[:2]: (await ask(site, route, **rebound)).status for route in table(site)}
        assert changed(site) == []
        assert site.log.count("refused a request for host evil.example") == 1

    assert {route for route, status in answers.items() if status != 403} == {
        ("GET", "/ping"),
        ("HEAD", "/ping"),
    }


async def test_replies_forbid_foreign_scripts_frames_and_caches():
    async with stub_site() as site:
        await site.get("/")
        answers = [
            (route[1], await ask(site, route))
            for route in table(site)
            if route[0] == "GET" and route[1] != "/ping"
        ]

    pages = 0
    for pattern, answer in answers:
        headers = answer.headers
        assert headers["X-Content-Type-Options"] == "nosniff", pattern
        if pattern not in {"/static/:asset", "/fonts/:asset"}:
            assert headers["Cache-Control"] == "no-store", pattern
        if not headers.get("Content-Type", "").startswith("text/html"):
            continue
        pages += 1
        policy = headers["Content-Security-Policy"].split("; ")
        assert policy[0] == "default-src 'self'", pattern
        assert {
            "frame-ancestors 'none'",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'self'",
        } <= set(policy)
        assert headers["X-Frame-Options"] == "DENY", pattern
        # The page must not contain anything that the policy would block.
        assert not re.search(r"<script>|<style|style=|onclick=", answer.html), pattern
    assert pages > 10


EVIL = '"><x-evil onload=alert(1)><script>alert(1)</script>'


class Tags(HTMLParser):
    """Finds markup that a page would run."""

    def __init__(self):
        super().__init__()
        self.evil = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "x-evil" or (tag == "script" and not given.get("src", "").startswith("/static/")):
            self.evil.append(tag)
        self.evil += [name for name in given if name.startswith("on")]


def hostile(answer):
    """An edit that puts markup in all texts that a node reports."""
    answer["health"] = f"NOK - {EVIL}"
    for topic in answer["topics"]:
        for channel in topic["channels"]:
            channel["depth"] = 9
            for client in channel["clients"] or ():
                client.update(dict.fromkeys(("client_id", "hostname", "user_agent", "auth_identity"), EVIL))
                client.update(
                    topology_zone=EVIL, topology_region=EVIL, tls=True, tls_version=EVIL, authed=True
                )
    more = json.loads(json.dumps(answer["topics"][0]))
    more["topic_name"] = EVIL
    more["channels"][0]["channel_name"] = EVIL
    answer["topics"].append(more)


async def test_texts_of_nodes_are_escaped_on_all_pages():
    def before(stubs):
        for node in stubs.nodes:
            described = node.describe
            node.edit = hostile
            node.describe = lambda told=described: (
                told() | dict.fromkeys(("hostname", "version", "topology_zone", "topology_region"), EVIL)
            )

    async with stub_site(before=before) as site:
        await site.get("/")

        async def shown():
            return "x-evil" in (await site.get("/topics")).html

        await site.until(shown, "the names are on the page")
        evil, seen = {}, 0
        for method, pattern, path, _ in table(site):
            if method != "GET":
                continue
            answer = await site.get(path)
            if not answer.headers.get("Content-Type", "").startswith("text/html"):
                continue
            tags = Tags()
            tags.feed(answer.html)
            seen += "x-evil" in answer.html
            if tags.evil:
                evil[pattern] = tags.evil
        searched = await site.get("/topics?q=%3Cscript%3Ealert(1)%3C/script%3E")

    assert evil == {}
    assert seen > 5
    assert "<script>alert" not in searched.html
