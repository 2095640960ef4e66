"""Random histories for some time: ``python -m tests.model --seconds 600``; ``--seed N`` plays one of them.

The last line says how many histories and operations agreed. A history that does not is printed with its seed.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.model.histories import RandomHistory
from tests.model.played import Mismatch, Played
from tests.support.processes import Cluster

STEPS = 60


def play(seed: int, folder: Path, steps: int = STEPS) -> int:
    """Play the random history of that seed; returns the number of operations. Raises Mismatch."""
    cluster = Cluster(folder)
    try:
        played = Played(cluster.nsqd())
        history = RandomHistory(played, seed)
        played.play(history.first())
        for _ in range(steps):
            played.apply(history.next())
        played.play(history.last())
        played.close()
        return len(played.steps)
    finally:
        cluster.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    histories = operations = failed = 0
    while True:
        seed = random.randrange(1 << 32) if options.seed is None else options.seed
        with tempfile.TemporaryDirectory() as folder:
            try:
                operations += play(seed, Path(folder), options.steps)
            except Mismatch as error:
                failed += 1
                sys.stdout.write(f"seed {seed}: {error}\n")
                sys.stdout.flush()
        histories += 1
        if options.seed is not None or time.monotonic() > end:
            break
    sys.stdout.write(f"{histories} histories, {operations} operations, {failed} histories differ\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
