"""docs/evidence/pipelines-faults.md names the test of each fault; the named tests exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = (TESTS.parents[1] / "docs" / "evidence" / "pipelines-faults.md").read_text(encoding="utf-8")
NAMED = [name for row in re.findall(r"`(test_\w+)(?:\[(\w+)\])?`", TABLE) for name in row if name]
ROWS = re.findall(r"^\| (\d+) \|", TABLE, re.MULTILINE)


def test_fault_table_names_existing_tests_in_numbered_rows():
    written = "\n".join(path.read_text(encoding="utf-8") for path in TESTS.glob("test_*.py"))

    assert [name for name in NAMED if f"def {name}(" not in written] == []
    assert [int(number) for number in ROWS] == list(range(1, len(ROWS) + 1))
    assert len(ROWS) > 30
