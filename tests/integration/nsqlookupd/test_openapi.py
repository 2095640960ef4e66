"""The description is compared with what nsqlookupd answers to every mix of arguments."""

from itertools import product
from urllib.parse import urlencode

import pytest

from nsqlookupd.http import HttpApi
from nsqlookupd.openapi import OPERATIONS, description
from tests.support.described import missing, names, note_arguments, refusal, refusals_of_every_route, required

# None: left out; `t` and `c` exist.
VALUES = {
    "topic": (None, "$", "none", "t"),
    "channel": (None, "$", "none", "c"),
    "node": (None, "none:1"),
    "identity": (None, "$", "0f" * 16),
}
MIXES = [
    {name: value for name, value in zip(VALUES, values, strict=True) if value is not None}
    for values in product(*VALUES.values())
]


def test_routes_alone_are_described():
    routes = HttpApi(None, None, None, None).routes()

    assert {(route.method, route.pattern) for route in routes} == set(OPERATIONS)


@pytest.mark.parametrize(("method", "pattern"), OPERATIONS)
async def test_arguments_answer_and_refusals_of_route_are_as_described(lookupd, monkeypatch, method, pattern):
    operation = OPERATIONS[method, pattern]
    await lookupd.post("/channel/create?topic=t&channel=c")
    read = note_arguments(monkeypatch)
    refusals, kinds, refused_in = set(), set(), set()
    for mix in MIXES:
        status, headers, body = await lookupd.http(method, f"{pattern}?{urlencode(mix)}")
        kind = headers.get("Content-Type", "").partition(";")[0]
        if status == 200:
            kinds.add(kind)
        else:
            refused_in.add(kind)
            refusals.add(refusal(status, headers, body))

    assert refusals == {str(one) for one in operation.refusals}
    assert refused_in <= {operation.refused_in}
    assert read == names(operation.arguments)
    assert missing(refusals) == required(operation.arguments)
    # It is not ready so soon after its start.
    assert kinds == ({operation.answer} if pattern != "/ready" else set())


async def test_routes_have_the_refusals_above_the_tables(lookupd):
    async def refused(method, target, **more):
        answer = await lookupd.http(method, target, **more)
        return None if answer[0] in {200, 503} else refusal(*answer)

    for (method, pattern), operation in OPERATIONS.items():
        malformed = await refused(method, f"{pattern}?topic=%zz")
        assert malformed == ("400 INVALID_REQUEST" if operation.arguments else None)
        foreign = await refused(
            method, f"{pattern}?topic=t&channel=c&node=n", headers={"Origin": "http://evil"}
        )
        assert (foreign == "403 FORBIDDEN") is (method == "POST")

    assert refusals_of_every_route("http-nsqlookupd.md") == {
        "400 INVALID_REQUEST",
        "403 FORBIDDEN",
        await refused("GET", "/none"),
        await refused("PUT", "/topics"),
    }


async def test_nsqlookupd_describes_itself(lookupd):
    assert await lookupd.get("/openapi.json") == description()
