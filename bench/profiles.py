"""``python -m bench.profiles``: runs every profile of nsq-load once on this machine and prints its cost.

It exits with 1 if a run missed its thresholds; the text below the table says which.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from load.cli import profile_names

HEADER: Final = (
    "| profile | seconds | acknowledged | received | missing | again"
    " | `publish` p99, `delivery` p50 / p99 (ms) | nsqd: processors, MB"
    " | nsqlookupd, nsqadmin: MB | load | judged |\n"
    "|---|--:|--:|--:|--:|---|---|---|---|--:|---|"
)


def run(words: Sequence[str], data_root: Path) -> tuple[int, str, dict[str, Any]]:
    """Run nsq-load with a report; return its exit code, its output and its figures."""
    with tempfile.TemporaryDirectory(prefix="profiles-", dir=data_root) as folder:
        report = Path(folder, "report")
        ended = subprocess.run(
            [sys.executable, "-m", "load", "run", *words, "--start", f"--report={report}"],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"TMPDIR": folder},
        )
        told = report / "report.json"
        found = json.loads(told.read_text()) if told.exists() else {}
        return ended.returncode, ended.stdout + ended.stderr, found


def line(name: str, told: dict[str, Any], load: float) -> str:
    """Return the results of a run as a line of the table."""
    again = ", ".join(f"{times:,} by {cause}" for cause, times in sorted(told["duplicates"].items()))
    times = [
        _time(told["latency_ms"].get(row, {}).get(percent))
        for row, percent in (("publish", "p99"), ("delivery", "p50"), ("delivery", "p99"))
    ]
    costs = told["daemons"]
    nsqds = [cost for daemon, cost in costs.items() if daemon.startswith("nsqd ")]
    others = [
        f"{max(cost['memory_mb'] for cost in found):.0f}"
        for kind in ("nsqlookupd ", "nsqadmin ")
        if (found := [cost for daemon, cost in costs.items() if daemon.startswith(kind)])
    ]
    cells = (
        name,
        f"{told['seconds']:.0f}",
        f"{told['acknowledged']:,}",
        f"{told['received']:,}",
        f"{told['missing']:,}",
        again,
        f"{times[0]}, {times[1]} / {times[2]}",
        f"{max(cost['cores'] for cost in nsqds):.2f}, {max(cost['memory_mb'] for cost in nsqds):.0f}",
        ", ".join(others),
        f"{load:.1f}",
        "reached" if not told["faults"] else f"{len(told['faults'])} missed",
    )
    return f"| {' | '.join(cells)} |"


def _time(milliseconds: float | None) -> str:
    return (
        "-"
        if milliseconds is None
        else f"{milliseconds:,.0f}"
        if milliseconds >= 10
        else f"{milliseconds:.1f}"
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.profiles", description=__doc__)
    parser.add_argument("profiles", nargs="*", help="default: all, and steady with an nsqd killed")
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="of a profile that is longer (default 30)"
    )
    parser.add_argument("--data-root", type=Path, help="where data and journals lie while a run lasts")
    args = parser.parse_args(argv)
    if args.data_root is not None:
        args.data_root.mkdir(parents=True, exist_ok=True)
    wanted = [(name, [name]) for name in args.profiles or profile_names()]
    if not args.profiles:
        wanted.append(("steady, an nsqd killed", ["steady", "--kill"]))
    said = []
    print(HEADER, flush=True)
    for name, words in wanted:
        load = os.getloadavg()[0]
        # The stages of this profile take forty seconds.
        more = [] if words[0] == "spike" else [f"--seconds={args.seconds:g}"]
        code, text, told = run([*words, *more], args.data_root)
        if not told:
            said.append(f"{name} did not run:\n{text[-2000:]}")
            continue
        print(line(name, told, load), flush=True)
        said += [f"{name}: {sentence}" for sentence in told["faults"]]
        if code and not told["faults"]:
            said.append(f"{name} ended with {code}:\n{text[-2000:]}")
    print(*said, sep="\n")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
