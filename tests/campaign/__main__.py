"""The campaigns for some time, or one state of them again.

python -m tests.campaign --minutes 20                      all campaigns, each for its share of the time
python -m tests.campaign kill --minutes 5 --first 100      one campaign, with seeds from 100 on
python -m tests.campaign kill --seeds 100 120              one campaign, those seeds in both modes
python -m tests.campaign power-cut --seed 35 --strict --at 123:0    the one state that a violation names
"""

import argparse
import random
import sys
import time

from tests.campaign.campaigns import CAMPAIGNS, run, seeds_for
from tests.campaign.ledger import MIN_WORKLOADS, shortfalls, written
from tests.campaign.result import Result

SHOWN = 5


def main() -> int:
    """Run the requested campaigns; the exit code reports violations or too little work."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign")
    parser.add_argument("campaign", nargs="?", choices=list(CAMPAIGNS))
    parser.add_argument("--minutes", type=float, default=20, help="processor time of all campaigns together")
    parser.add_argument("--first", type=int, help="the first seed; random by default")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, nargs=2, metavar=("FROM", "TO"))
    parser.add_argument("--every", type=int, help="interval of the tested steps, calls, reads or bytes")
    parser.add_argument("--stop", action="store_true", help="stop at the first violation")
    parser.add_argument("--ledger", action="store_true", help="print what was done")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--strict", action="store_true")
    mode.add_argument("--default", action="store_true")
    parser.add_argument("--at", default="", help="the one state to look at, as a violation prints it")
    chosen = parser.parse_args()
    names = [chosen.campaign] if chosen.campaign else list(CAMPAIGNS)
    if chosen.first is None:
        chosen.first = random.randrange(1, 1 << 20)
    failed = 0
    for name in names:
        failed |= _run(name, chosen, 60 * chosen.minutes / len(names))
    return failed


def _run(name: str, chosen: argparse.Namespace, seconds: float) -> int:
    """Run one campaign and print its result; return 1 if it has failed."""
    modes = [True] if chosen.strict else [False] if chosen.default else [False, True]
    seeds = seeds_for(seconds, chosen.first)
    if chosen.seed is not None:
        seeds = iter([chosen.seed])
    elif chosen.seeds:
        seeds = iter(range(*chosen.seeds))
    began, result, tried = time.monotonic(), Result(), []
    for seed in seeds:
        tried.append(seed)
        for strict in modes:
            result.add(run(name, seed, strict=strict, every=chosen.every, only=chosen.at))
        if chosen.stop and result.violations:
            break
    for violation in result.violations[:SHOWN]:
        print(violation)
    print(
        f"{name}: {len(tried)} seeds from {tried[0]} on, {result.states} states or histories, "
        f"{result.messages} messages, {len(result.violations)} violations, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    if chosen.ledger:
        print(written(result.ledger))
    # The least counts hold for whole runs of many seeds.
    whole = len(tried) * len(modes) >= MIN_WORKLOADS and not (chosen.stop or chosen.every or chosen.at)
    short = shortfalls(name, result.ledger) if whole else []
    for text in short:
        print(text)
    return bool(result.violations or short)


if __name__ == "__main__":
    sys.exit(main())
