"""Long runs of the archive on a standalone Spark cluster, while one process after the other is killed.

python -m tests.spark_campaign                               every kind three times
python -m tests.spark_campaign worker jvm --kills 20         these kinds, twenty kills
python -m tests.spark_campaign --seed 7                      the run that a violation names
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.spark_campaign.breaking import KINDS
from tests.spark_campaign.run import Run


def main() -> int:
    """Run what was asked for; the exit code is 1 if a message is missing or stored twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark_campaign")
    parser.add_argument("kind", nargs="*", choices=[[], *KINDS], default=[])
    parser.add_argument("--kills", type=int, default=3 * len(KINDS))
    parser.add_argument("--minutes", type=float, default=0.0, help="kill no longer than that, then count")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    chosen = parser.parse_args()
    failed = 0
    kinds = [*(chosen.kind or KINDS)]
    until = time.monotonic() + 60 * chosen.minutes if chosen.minutes else float("inf")
    with (
        tempfile.TemporaryDirectory(prefix="nsq-spark-") as folder,
        Run(Path(folder), chosen.seed) as run,
    ):
        try:
            for number in range(chosen.kills):
                if time.monotonic() > until:
                    break
                run.one_more_batch()
                name = kinds[number % len(kinds)]
                run.kill(name, KINDS[name])
                # For users who stop the run before the count.
                print(f"kill {number + 1}: {name}, {run.published} published", file=sys.stderr, flush=True)
            run.one_more_batch()
            run.finish()
            found = "each once"
        except AssertionError as error:
            failed, found = 1, f"VIOLATION {error}"
        kills = ", ".join(f"{name} {count}" for name, count in run.kills.items())
        ends = ", ".join(f"{name!r} {count}" for name, count in run.endings.items())
        print(f"seed {chosen.seed}: killed {kills}", flush=True)
        print(f"  the job ended: {ends or 'never'}", flush=True)
        print(f"  {run.published} messages published, {found}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
