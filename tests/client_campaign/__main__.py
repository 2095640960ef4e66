"""Long runs of the client under faults.

python -m tests.client_campaign                          every kind, a minute each
python -m tests.client_campaign kills --seconds 600      one kind, ten minutes
python -m tests.client_campaign frozen --seed 7          the run that a violation names
"""

import argparse
import asyncio
import logging
import random
import sys

from tests.client_campaign.faults import KINDS, Run


def main() -> int:
    """Run what was asked for; the exit code says whether there were violations."""
    parser = argparse.ArgumentParser(prog="python -m tests.client_campaign")
    parser.add_argument("kind", nargs="*", choices=[[], *KINDS], default=[])
    parser.add_argument("--seconds", type=float, default=60, help="of faults, for each kind")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    failed = 0
    for kind in chosen.kind or KINDS:
        run = Run(chosen.seconds, chosen.seed)
        asyncio.run(KINDS[kind](run))
        print(f"{kind} (seed {chosen.seed}): {run.journal}", flush=True)
        for violation in run.journal.violations():
            failed = 1
            print(f"  VIOLATION {violation}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
