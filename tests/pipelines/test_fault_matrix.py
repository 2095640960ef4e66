"""docs/evidence/pipelines-faults.md names the test of each fault; the named tests exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = (TESTS.parents[1] / "docs" / "evidence" / "pipelines-faults.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(test_\w+)`", TABLE)
ROWS = re.findall(r"^\| (\d+) \|", TABLE, re.MULTILINE)


def test_every_named_test_exists():
    written = "\n".join(path.read_text(encoding="utf-8") for path in TESTS.glob("test_*.py"))

    assert [name for name in NAMED if f"def {name}(" not in written] == []


def test_rows_are_numbered_one_after_the_other():
    assert [int(number) for number in ROWS] == list(range(1, len(ROWS) + 1))
    assert len(ROWS) > 30
