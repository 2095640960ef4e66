#!/usr/bin/env python3
"""Write the table of values in each chart's README from the comments in values.yaml; --check compares."""

import argparse
import json
import re
import sys
from pathlib import Path

import yaml

CHARTS = Path(__file__).resolve().parent.parent / "deploy" / "helm"
BEGIN = "<!-- values: written by scripts/chart_readme.py -->"
END = "<!-- end of values -->"

_KEY = re.compile(r"( *)([A-Za-z]\w*):(?: (.*))?")


def rows(text: str) -> list[tuple[str, object, str]]:
    """Return path, default and meaning of every commented key of values.yaml, in its order."""
    defaults = yaml.safe_load(text)
    found: list[tuple[str, object, str]] = []
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# "):
            comment.append(stripped[2:])
            continue
        key = _KEY.fullmatch(line)
        if key:
            path = [*path[: len(key[1]) // 2], key[2]]
            if comment:
                value = defaults
                for name in path:
                    value = value[name]
                found.append((".".join(path), value, " ".join(comment)))
        comment = []
    return found


def table(text: str) -> str:
    lines = ["| value | default | meaning |", "|---|---|---|"]
    for path, default, meaning in rows(text):
        lines.append(f"| `{path}` | `{json.dumps(default)}` | {meaning} |")
    return "\n".join(lines)


def with_table(readme: str, values: str) -> str:
    """Return the README with the table between its two marks renewed."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(values)}\n{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("; ", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    check = parser.parse_args().check
    old = []
    for path in sorted(CHARTS.glob("*/README.md")):
        readme = path.read_text()
        wanted = with_table(readme, path.with_name("values.yaml").read_text())
        if not check:
            path.write_text(wanted)
        elif readme != wanted:
            old.append(str(path.relative_to(CHARTS.parents[1])))
    if old:
        print(f"{', '.join(old)}: out of date, run scripts/chart_readme.py", file=sys.stderr)
    return int(bool(old))


if __name__ == "__main__":
    sys.exit(main())
