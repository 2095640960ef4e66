import json
import re

import pytest

import nsqadmin.openapi
import nsqd.server.http.openapi
import nsqlookupd.openapi
from nsqcore.http.openapi import JSON, NAME, PLAIN, Operation, describe

EVERY = {
    "nsqd": nsqd.server.http.openapi.description(),
    "nsqlookupd": nsqlookupd.openapi.description(),
    "nsqadmin": nsqadmin.openapi.description(),
}
ARGUMENTS = {"topic": (NAME, "name of a topic"), "channel": (NAME, "name of a channel")}


def operations(description):
    return [
        (method, path, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]


def described(operation, method="GET", path="/x", **more):
    found = describe("nsqd", "", {(method, path): operation}, ARGUMENTS, **more)
    return operations(found)[0][2]


@pytest.mark.parametrize("daemon", EVERY)
def test_names_in_path_are_its_parameters(daemon):
    for _, path, operation in operations(EVERY[daemon]):
        in_path = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", path))
        assert all(one["required"] for one in operation["parameters"] if one["in"] == "path")


@pytest.mark.parametrize("daemon", EVERY)
def test_description_is_openapi_3_1(daemon):
    found = json.loads(json.dumps(EVERY[daemon]))

    assert found["openapi"].startswith("3.1.")
    assert {"title", "version"} <= set(found["info"])
    ids = [operation["operationId"] for _, _, operation in operations(found)]
    assert len(ids) == len(set(ids))
    for method, path, operation in operations(found):
        assert path.startswith("/")
        assert method in {"get", "put", "post", "delete"}
        assert "200" in operation["responses"]
        assert all(re.fullmatch("[1-5][0-9]{2}", status) for status in operation["responses"])
        names = [one["name"] for one in operation["parameters"]]
        assert len(names) == len(set(names))


def test_members_of_body_are_described_like_arguments():
    found = described(Operation("topics", "create", body=JSON, members="topic! channel"), "POST")
    schema = found["requestBody"]["content"][JSON]["schema"]

    assert schema["required"] == ["topic"]
    assert {name: one["description"] for name, one in schema["properties"].items()} == {
        "topic": "name of a topic",
        "channel": "name of a channel",
    }


def test_refusal_has_its_codes_as_far_as_they_are_known():
    responses = described(
        Operation("topics", "look", refusals=("404 TOPIC_NOT_FOUND", "404 CHANNEL_NOT_FOUND", 400))
    )["responses"]

    assert list(responses) == ["200", "400", "404"]
    assert responses["404"]["x-codes"] == ["TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND"]
    assert "x-codes" not in responses["400"]


def test_refusal_in_text_is_described_as_text():
    responses = described(Operation("node", "ready", refusals=(503,), refused_in=PLAIN))["responses"]

    assert responses["503"]["content"] == {PLAIN: {"schema": {}}}


def test_route_that_may_ask_for_secret_says_so():
    key = ("GET", "/x")
    found = described(Operation("node", "look"), grants={key: "It has to grant x."})

    assert found["security"] == [{"bearer": []}, {}]
    assert found["description"] == "It has to grant x."
    assert {"401", "403"} < set(found["responses"])
    assert "security" not in described(Operation("node", "look"))
