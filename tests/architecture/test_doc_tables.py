"""The tables of grants and of policy settings in docs/ list every request and every setting of the code."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from nsqd.policies.definition import KEYS, TOPICS_OWN
from nsqd.server.http.openapi import NEEDS, Needs

DOCS = Path(__file__).parents[2] / "docs"
# The grants that the rows of the table of requests need, in order.
ROWS = (Needs.PUBLISH, Needs.SUBSCRIBE, Needs.TOPIC, Needs.NODE, Needs.NOTHING)


def rows(page, head):
    """The cells of each row below the line that is *head*."""
    table = (DOCS / page).read_text(encoding="utf-8").split(f"{head}\n")[1].split("\n\n")[0]
    return [line.split("|")[1:-1] for line in table.splitlines()[1:]]


def requests_of(cell):
    """(method or "", pattern of the path) of each request that a cell names."""
    return re.findall(r"`(?:(GET|POST|PUT|DELETE) )?(/[^`]*)`", cell)


@pytest.mark.parametrize("request_", NEEDS, ids=" ".join)
def test_request_is_in_row_of_grant_that_it_needs(request_):
    method, path = request_
    table = rows("security.md", "| requests | the secret has to grant |")

    named = [
        needs
        for needs, (cell, _) in zip(ROWS, table, strict=True)
        if any(of in ("", method) and fnmatchcase(path, pattern) for of, pattern in requests_of(cell))
    ]

    assert named == [NEEDS[request_]]


def test_policy_table_lists_each_setting_and_whether_it_concerns_topic():
    named = {
        key: about.strip()
        for cell, about, _ in rows("policies.md", "| setting | about | meaning |")
        for key in re.findall(r"`(\w+)`", cell)
    }

    assert named.keys() == set(KEYS)
    assert {key for key, about in named.items() if about == "topic"} == set(TOPICS_OWN)
