#!/usr/bin/env python3
"""Compare the branch coverage of each package with the table of docs/evidence/reliability.md.

``make coverage`` runs it. It prints the measured table.
It exits with 1 if a package is more than half a point below its number.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = PROJECT / "docs" / "evidence" / "reliability.md"
TOLERANCE: Final = 0.5


def measured() -> dict[str, float]:
    """Return the percentage of each package and subpackage: lines and branches that ran, of all."""
    report = PROJECT / ".coverage.json"
    subprocess.run([sys.executable, "-m", "coverage", "json", "-q", "-o", report], cwd=PROJECT, check=True)
    ran, there = Counter[str](), Counter[str]()
    for name, file in json.loads(report.read_text())["files"].items():
        parts = [part for part in Path(name).parts[:-1] if part not in {"client", "pipelines"}]
        summary = file["summary"]
        for package in {parts[0], "/".join(parts[:2])}:
            ran[package] += summary["covered_lines"] + summary["covered_branches"]
            there[package] += summary["num_statements"] + summary["num_branches"]
    report.unlink()
    return {package: 100 * ran[package] / there[package] for package in there if there[package]}


def main() -> int:
    rows = re.findall(r"^\| (\w[\w/]*) \| ([\d.]+) \|$", PAGE.read_text(), re.MULTILINE)
    floors = {name: float(percent) for name, percent in rows}
    found = measured()
    print("| package | percent |\n| -- | -: |")
    for package in floors:
        print(f"| {package} | {found.get(package, 0):.1f} |")
    low = {package for package, floor in floors.items() if found.get(package, 0) < floor - TOLERANCE}
    for package in sorted(low):
        print(f"{package} is below {floors[package]} percent", file=sys.stderr)
    return bool(low)


if __name__ == "__main__":
    sys.exit(main())
