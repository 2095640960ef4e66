"""Long runs of the campaigns, or one state of them again.

python -m tests.campaign                                   every campaign, more than 60,000 states
python -m tests.campaign kill --seeds 100 120              one campaign, those seeds in both modes
python -m tests.campaign power-cut --seed 35 --strict --at 123:0    the one state that a violation names
"""

import argparse
import sys
import time
from itertools import product

from tests.campaign.campaigns import CAMPAIGNS, FAILED_CALL, KILL, POWER_CUT, SECOND_CRASH
from tests.campaign.ledger import shortfalls, written
from tests.campaign.result import Result, again

# Seeds of the long run, and the interval of the tested steps, calls, reads or bytes.
LONG = {
    POWER_CUT: (40, 1),
    KILL: (60, 1),
    FAILED_CALL: (20, 1),
    SECOND_CRASH: (20, 1),
    "calls": (3, 5),
    "reads": (10, 1),
    "bits": (8, 11),
}
SHOWN = 5


def main() -> int:
    """Run what was asked for; the exit code says whether there were violations or too little work."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign")
    parser.add_argument("campaign", nargs="?", choices=list(CAMPAIGNS))
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, nargs=2, metavar=("FROM", "TO"))
    parser.add_argument("--every", type=int)
    parser.add_argument("--stop", action="store_true", help="stop at the first violation")
    parser.add_argument("--ledger", action="store_true", help="print what was done")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--strict", action="store_true")
    mode.add_argument("--default", action="store_true")
    parser.add_argument("--at", default="", help="the one state to look at, as a violation prints it")
    chosen = parser.parse_args()
    modes = [True] if chosen.strict else [False] if chosen.default else [False, True]
    failed = 0
    for name in [chosen.campaign] if chosen.campaign else CAMPAIGNS:
        count, every = LONG[name]
        first, last = chosen.seeds or (1, count + 1)
        if chosen.seed is not None:
            first, last = chosen.seed, chosen.seed + 1
        began = time.monotonic()
        result = Result()
        for seed, strict in product(range(first, last), modes):
            result.add(_run(name, seed, strict=strict, every=chosen.every or every, only=chosen.at))
            if chosen.stop and result.violations:
                break
        failed |= _show(name, result, time.monotonic() - began, ledger=chosen.ledger, stop=chosen.stop)
    return failed


def _run(name: str, seed: int, *, strict: bool, every: int, only: str) -> Result:
    try:
        return CAMPAIGNS[name](seed, strict=strict, every=every, only=only)
    except Exception as error:  # noqa: BLE001 - every error is reported
        result = Result()
        result.failed(again(name, seed, strict=strict), error)
        return result


def _show(name: str, result: Result, seconds: float, *, ledger: bool, stop: bool) -> int:
    for violation in result.violations[:SHOWN]:
        print(violation)
    print(
        f"{name}: {result.states} states, {result.messages} messages, "
        f"{len(result.violations)} violations, {seconds:.0f} s"
    )
    if ledger:
        print(written(result.ledger))
    # A run that stops at the first violation need not do enough work.
    short = [] if stop else shortfalls(name, result.ledger)
    for text in short:
        print(text)
    return bool(result.violations or short)


if __name__ == "__main__":
    sys.exit(main())
