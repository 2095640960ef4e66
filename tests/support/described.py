"""Compares a description of an HTTP API with what a daemon in the test's own process does."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import nsqcore.http.api

REFERENCE: Final = Path(__file__).parents[2] / "docs" / "reference"


def refusals_of_every_route(page: str) -> set[str]:
    """Return what a page of the reference says above its tables: refusals that are not of one route."""
    above = (REFERENCE / page).read_text(encoding="utf-8").partition("<!--")[0]
    return {" ".join(found) for found in re.findall(r"(\d{3}) `([A-Z_]+)`", above)}


def note_arguments(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return a set to which the name of each argument is added that a handler asks for from now on."""
    read: set[str] = set()

    class Noting(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            read.add(name)
            return super().get(name, default)

    parse = nsqcore.http.api.parse_query
    monkeypatch.setattr(nsqcore.http.api, "parse_query", lambda text: Noting(parse(text)))
    return read


def refusal(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """Return a refusal as descriptions write it: the status, and the code if there is one."""
    if not headers["Content-Type"].startswith("application/json"):
        return str(status)
    code = json.loads(body)["message"].partition(":")[0]
    return f"{status} {code}"


def names(described: str) -> set[str]:
    return {name.rstrip("!") for name in described.split()}


def required(described: str) -> set[str]:
    return {name.rstrip("!") for name in described.split() if name.endswith("!")}


def missing(refusals: Iterable[str]) -> set[str]:
    """Return the arguments that are refused when they are left out."""
    found = [str(one).partition(" MISSING_ARG_")[2].lower() for one in refusals]
    return set(filter(None, found))
