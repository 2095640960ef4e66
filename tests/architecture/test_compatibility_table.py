"""Each row of the compatibility table names tests that exist; each "same" has one for Go's NSQ."""

import re
from pathlib import Path

from tests.support import beside

ROOT = Path(__file__).parents[2]
TABLES = (ROOT / "docs" / "evidence" / "compatibility.md").read_text(encoding="utf-8")
SOURCES = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}

FUNCTIONS = {name for text in SOURCES.values() for name in re.findall(r"def (test_\w+)", text)}
FILES = {path.name for path in SOURCES}


def test_table_names_tests_that_exist():
    named = set(re.findall(r"`(?:tests/[\w/]*/)?(test_\w+(?:\.py)?)`", TABLES))

    assert len(named) > 300
    assert named - FUNCTIONS - FILES == set()


# Tests that start a daemon or a tool as a process, which may be the original's.
STARTING = {
    name
    for path, text in SOURCES.items()
    if path.is_relative_to(ROOT / "tests" / "integration")
    for name in re.findall(r"def (test_\w+)", text)
}


def test_same_rows_can_be_tried_on_original():
    tried = STARTING - set(beside.DIFFERS)
    untried = [row for row in beside.same_rows() if not beside.is_alone(row) and not tried & set(row.proofs)]

    assert [row.behaviour for row in untried] == []


def test_known_differences_are_proofs_of_rows():
    known = {name.partition("[")[0] for name in beside.DIFFERS}

    assert known <= beside.proofs()
