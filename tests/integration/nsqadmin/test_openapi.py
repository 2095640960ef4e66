"""The description is compared with what nsqadmin answers, in a cluster that is well and in others."""

import json
import re
from contextlib import asynccontextmanager
from io import BytesIO
from itertools import product
from urllib.parse import quote

import pytest
from yarl import URL

from nsqadmin.api.cluster import BODY_LIMIT
from nsqadmin.openapi import OPERATIONS, description
from nsqcore.http.api import Request
from tests.integration.nsqadmin.test_security_list import TOPIC, ask, table
from tests.support.described import names, note_arguments, refusal, refusals_of_every_route, required
from tests.support.stub_site import stub_site

WORDS = {"topic": (TOPIC, "none"), "channel": ("billing", "none"), "opt": ("log_level", "none")}
QUERIES = ("", "?inactive=true", "?metric=rate", "?metric=rate&target=x", "?format=xml")
BODIES = (
    "",
    "no json",
    '{"topic":"$"}',
    json.dumps({"topic": TOPIC}),
    json.dumps({"topic": TOPIC, "channel": "$"}),
    json.dumps({"topic": TOPIC, "channel": "made"}),
    json.dumps({"topic": "none", "channel": "made"}),
    '{"action":"pause"}',
    '{"action":"cook"}',
    "x" * (BODY_LIMIT + 1),
)
# Answers of Graphite are passed on; there is none.
GRAPHITE = {"graphite_url": "http://127.0.0.1:9", "proxy_graphite": True}
# The codes have a word more, or are this one; the sentences of what is wrong with a body have not.
CODE = re.compile(r"\d+ (?:[A-Z]+(?:_[A-Z]+)+|FORBIDDEN)")


def requests(site, method, pattern):
    """Every mix of names that exist or do not, of arguments, and of bodies."""
    words = {**WORDS, "node": (site.address(0), "127.0.0.1:1")}
    parts = [words[part[1:]] if part[:1] == ":" else (part,) for part in pattern.split("/")]
    queries = QUERIES if method == "GET" else ("",)
    bodies = BODIES if OPERATIONS[method, pattern].body else (None,)
    for path, query, body in product(map("/".join, product(*parts)), queries, bodies):
        yield quote(path, safe="/:") + query, body


def without(kind):
    """Make nsqds without the topics, or without the channels, that they are told to change."""

    def prepare(stubs):
        for node in stubs.nodes:
            usual = node.answer

            def answer(method, path, query, usual=usual):
                if method == "POST" and (kind == "topic" or path.startswith("/channel/")):
                    return 404, json.dumps({"message": f"{kind.upper()}_NOT_FOUND"}).encode()
                return usual(method, path, query)

            node.answer = answer

    return prepare


@asynccontextmanager
async def nobody_answers():
    async with stub_site(**GRAPHITE) as site:
        await site.get("/api/counter")
        site.stubs.silent_lookupds.add(0)
        for node in site.nodes:
            await site.stubs._problem(node, "die")

        async def is_noticed():
            paths = ("/api/nodes", "/api/counter", f"/api/nodes/{site.address(0)}")
            return [(await site.get(path)).status for path in paths] == [502] * 3

        await site.until(is_noticed, "it is noticed that no node answers")
        yield site


def situations():
    yield stub_site(**GRAPHITE)
    yield stub_site(**GRAPHITE, lookupds=0, before=without("topic"))
    yield stub_site(**GRAPHITE, lookupds=0, before=without("channel"))
    yield stub_site(**GRAPHITE, allow_config_from_cidr="10.0.0.0/8")
    yield nobody_answers()


async def test_api_routes_alone_are_described():
    async with stub_site(**GRAPHITE) as site:
        routes = {
            (route.method, route.pattern)
            for route in site.daemon._server.http._router.routes
            if not route.handler.__module__.startswith("nsqadmin.pages.") and route.method != "HEAD"
        }

    assert routes == set(OPERATIONS)


async def test_arguments_answers_and_refusals_are_as_described(monkeypatch):
    refusals = {key: set() for key in OPERATIONS}
    arguments = {key: set() for key in OPERATIONS}
    kinds = {key: set() for key in OPERATIONS}
    sentences = set()
    read = note_arguments(monkeypatch)
    for situation in situations():
        async with situation as site:
            for method, pattern in OPERATIONS:
                read.clear()
                for target, body in requests(site, method, pattern):
                    sent = None if body is None else BytesIO(body.encode())
                    answer = await site.ask(method, target, sent)
                    if answer.status == 200:
                        kinds[method, pattern].add(answer.headers["Content-Type"].partition(";")[0])
                        continue
                    said = refusal(answer.status, answer.headers, answer.body)
                    if CODE.fullmatch(said):
                        refusals[method, pattern].add(said)
                    else:
                        sentences.add((method, pattern))
                arguments[method, pattern] |= read
            with monkeypatch.context() as patch:
                # As on a unix socket.
                patch.setattr(Request, "peer", "@")
                for method in ("GET", "PUT"):
                    answer = await site.ask(method, "/config/log_level", "debug" if method == "PUT" else None)
                    if answer.status != 200:
                        said = refusal(answer.status, answer.headers, answer.body)
                        refusals[method, "/config/:opt"].add(said)

    assert refusals == {key: {str(one) for one in OPERATIONS[key].refusals} for key in OPERATIONS}
    assert arguments == {key: names(OPERATIONS[key].arguments) - in_path(key) for key in OPERATIONS}
    # A body that cannot be read is refused with a sentence, as by the original.
    reads_json = {key for key in OPERATIONS if OPERATIONS[key].members}
    assert sentences == reads_json - {("DELETE", "/api/nodes/:node")}
    for key, operation in OPERATIONS.items():
        assert in_path(key) <= required(operation.arguments)
        assert kinds[key] <= set(operation.answer.split())


def in_path(key):
    return {part[1:] for part in key[1].split("/") if part[:1] == ":"}


async def test_reading_needs_viewer_posting_operator_and_the_rest_admin():
    least = {"GET": "viewer", "POST": "operator", "DELETE": "admin", "PUT": "admin"}
    roles = ("viewer", "operator", "admin")
    async with stub_site(**GRAPHITE, roles=tuple(f"{role}:user={role}" for role in roles)) as site:
        routes = [one for one in table(site) if one[:2] in OPERATIONS and one[1] != "/ping"]
        for route in routes:
            may = [
                role
                for role in roles
                if (await ask(site, route, X_Forwarded_User=role)).status not in {401, 403}
            ]
            assert may == list(roles[roles.index(least[route[0]]) :]), route
        assert len(routes) == len(OPERATIONS) - 1


async def test_routes_have_the_refusals_above_the_tables(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("")
    unknown = [
        {},
        {"X-Forwarded-User": "mallory"},
        {"Authorization": "Bearer wrong"},
        {"X-Forwarded-User": "vera", "Host": "evil.example"},
        [("X-Forwarded-User", "vera"), ("X-Forwarded-User", "alice")],
        [("X-Forwarded-User", "vera"), ("X-Forwarded-Groups", "a"), ("X-Forwarded-Groups", "b")],
    ]
    access = {"roles": ("admin:user=vera",), "acl_groups_http_header": "X-Forwarded-Groups"}
    async with stub_site(**GRAPHITE, **access, api_token_file=str(tokens)) as site:

        async def refused(method, path, headers):
            target = URL(path, encoded=True)
            async with site._http.request(method, target, headers=headers) as answer:
                return refusal(answer.status, answer.headers, await answer.read())

        found = {"400 INVALID_REQUEST"}
        for method, pattern, path, _ in table(site):
            if (method, pattern) not in OPERATIONS or pattern == "/ping":
                continue
            every = {await refused(method, path, headers) for headers in unknown}
            assert len(every) == len(unknown)
            found |= every
            if names(OPERATIONS[method, pattern].arguments) - in_path((method, pattern)):
                query = f"{path}?metric=%zz"
                assert await refused(method, query, {"X-Forwarded-User": "vera"}) == "400 INVALID_REQUEST"
            tokens.write_text("nonsense")
            found.add(unusable := await refused(method, path, {"X-Forwarded-User": "vera"}))
            assert unusable == "503 TOKEN_FILE_UNUSABLE"
            tokens.write_text("")

    assert found == refusals_of_every_route("http-nsqadmin.md")


@pytest.mark.parametrize("base_path", ["", "/nsq"])
async def test_nsqadmin_describes_itself(base_path):
    async with stub_site(base_path=base_path or "/") as site:
        found = (await site.get(f"{base_path}/openapi.json")).json()

    assert found == description(base_path)
    assert found["servers"] == [{"url": base_path or "/"}]
