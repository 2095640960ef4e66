"""docs/compatibility.md names the test that proves each line; here it is seen to that those tests exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLES = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
SOURCES = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}

FUNCTIONS = {name for text in SOURCES.values() for name in re.findall(r"def (test_\w+)", text)}
FILES = {path.name for path in SOURCES}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(?:tests/[\w/]*/)?(test_\w+(?:\.py)?)`", TABLES))))
def test_the_table_names_tests_that_exist(name):
    assert name in FUNCTIONS | FILES
