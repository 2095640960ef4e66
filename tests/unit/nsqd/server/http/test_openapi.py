"""The description is checked against the routes and the arguments that their handlers read."""

import re
from pathlib import Path
from unittest.mock import create_autospec

import pytest

import nsqd.server.http
from nsqd.server.http.openapi import NEEDS, OPERATIONS, Needs, description
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


def test_routes_and_nothing_else_are_described(table):
    assert set(OPERATIONS) == {(route.method, route.pattern) for route in table}


def test_arguments_of_handlers_are_described():
    read = set()
    for path in (*HTTP.glob("*.py"), *(HTTP.parent / "messages").glob("*.py")):
        text = path.read_text()
        read |= set(re.findall(r'(?:query|arguments)\.get\(\s*"(\w+)"', text))
        read |= set(re.findall(r'(?:require|flag|_sequence)\((?:request, )?"(\w+)"', text))
        read |= set(re.findall(r'(?:number|truth|_position)\([\w.]+, (?:request, )?"(\w+)"', text))
    described = {one["name"] for _, _, operation in operations() for one in operation["parameters"]}

    assert read == described - {"opt"}


def test_routes_that_need_secret_are_described():
    for (method, pattern), needs in NEEDS.items():
        path = re.sub(r":(\w+)", r"{\1}", pattern)
        operation = description()["paths"][path][method.lower()]
        assert ("security" in operation) is (needs is not Needs.NOTHING)


def test_paths_are_in_documentation():
    text = (DOCS / "http-api.md").read_text()

    assert [pattern for _, pattern in OPERATIONS if pattern not in text] == []
