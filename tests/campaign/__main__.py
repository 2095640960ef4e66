"""Long runs of the campaigns, and one state again.

python -m tests.campaign                                   every campaign, more than 20,000 states
python -m tests.campaign kill --seeds 100 120              one campaign, those seeds in both modes
python -m tests.campaign power-cut --seed 35 --strict --at 123:0    the one crash that a violation names
"""

import argparse
import sys
import time

from tests.campaign.campaigns import CAMPAIGNS, Result, crashes

# Seeds of the long run, and every how manieth call, read or byte.
LONG = {"power-cut": (40, 1), "kill": (60, 1), "calls": (3, 5), "reads": (10, 1), "bits": (8, 11)}
SHOWN = 5


def main() -> int:
    """Run what was asked for; the number of violations decides the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign")
    parser.add_argument("campaign", nargs="?", choices=list(CAMPAIGNS))
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, nargs=2, metavar=("FROM", "TO"))
    parser.add_argument("--every", type=int)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--strict", action="store_true")
    mode.add_argument("--default", action="store_true")
    parser.add_argument("--at", help="steps:image of the one crash to look at")
    chosen = parser.parse_args()
    modes = [True] if chosen.strict else [False] if chosen.default else [False, True]
    if chosen.at:
        k, image = map(int, chosen.at.split(":"))
        result = crashes(chosen.campaign, chosen.seed, strict=chosen.strict, at=(k, image))
        return _show(chosen.campaign, result, 0.0)
    failed = 0
    for name in [chosen.campaign] if chosen.campaign else CAMPAIGNS:
        count, every = LONG[name]
        first, last = chosen.seeds or (1, count + 1)
        if chosen.seed is not None:
            first, last = chosen.seed, chosen.seed + 1
        began = time.monotonic()
        result = Result()
        for seed in range(first, last):
            for strict in modes:
                result.add(CAMPAIGNS[name](seed, strict=strict, every=chosen.every or every))
        failed |= _show(name, result, time.monotonic() - began)
    return failed


def _show(name: str, result: Result, seconds: float) -> int:
    for violation in result.violations[:SHOWN]:
        print(violation)
    print(
        f"{name}: {result.states} states, {result.messages} messages, "
        f"{len(result.violations)} violations, {seconds:.0f} s"
    )
    return bool(result.violations)


if __name__ == "__main__":
    sys.exit(main())
