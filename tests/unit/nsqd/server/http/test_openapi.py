"""The description is checked against the routes and the arguments that their handlers read."""

import json
import re
from pathlib import Path
from unittest.mock import create_autospec

import pytest

import nsqd.server.http
from nsqd.server.http.auth import NEEDS, Needs
from nsqd.server.http.openapi import OPERATIONS, description
from nsqd.server.http.routes import routes

HTTP = Path(nsqd.server.http.__file__).parent
DOCS = HTTP.parents[2] / "docs"


@pytest.fixture(scope="module")
def table():
    """The routes; their handlers are not called."""
    hints = {name: kind for name, kind in routes.__annotations__.items() if name != "return"}
    return routes(**{name: create_autospec(kind) for name, kind in hints.items()})


def operations():
    return [
        (method, path, operation)
        for path, methods in description()["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_route_is_described_and_nothing_else_is(table):
    assert set(OPERATIONS) == {(route.method, route.pattern) for route in table}


def test_every_route_says_what_a_secret_has_to_grant(table):
    assert {(route.method, route.pattern) for route in table} == set(NEEDS)


def test_every_argument_that_a_handler_reads_is_described():
    read = set()
    for path in (*HTTP.glob("*.py"), *(HTTP.parent / "messages").glob("*.py")):
        text = path.read_text()
        read |= set(re.findall(r'(?:query|arguments)\.get\(\s*"(\w+)"', text))
        read |= set(re.findall(r'(?:require|_sequence)\((?:request, )?"(\w+)"', text))
        read |= set(re.findall(r'(?:number|truth|_position)\([\w.]+, (?:request, )?"(\w+)"', text))
    described = {one["name"] for _, _, operation in operations() for one in operation["parameters"]}

    assert read == described - {"opt"}


def test_the_names_in_a_path_are_its_parameters():
    for _, path, operation in operations():
        in_path = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", path))
        assert all(one["required"] for one in operation["parameters"] if one["in"] == "path")


def test_it_is_openapi_3_1():
    found = json.loads(json.dumps(description()))

    assert found["openapi"].startswith("3.1.")
    assert {"title", "version"} <= set(found["info"])
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(ids) == len(set(ids))
    for method, path, operation in operations():
        assert path.startswith("/")
        assert method in {"get", "put", "post", "delete"}
        assert "200" in operation["responses"]
        assert all(re.fullmatch("[1-5][0-9]{2}", status) for status in operation["responses"])
        names = [one["name"] for one in operation["parameters"]]
        assert len(names) == len(set(names))


def test_who_needs_a_secret_is_told():
    for (method, pattern), needs in NEEDS.items():
        path = re.sub(r":(\w+)", r"{\1}", pattern)
        operation = description()["paths"][path][method.lower()]
        assert ("security" in operation) is (needs is not Needs.NOTHING)


def test_every_path_is_in_the_documentation():
    text = (DOCS / "http-api.md").read_text()

    assert [pattern for _, pattern in OPERATIONS if pattern not in text] == []
