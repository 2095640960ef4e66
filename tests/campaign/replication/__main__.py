"""Run histories of replication.

python -m tests.campaign.replication --minutes 20                 all profiles, and one stage for each seed
python -m tests.campaign.replication --profile people --from 40 --seeds 10
python -m tests.campaign.replication --without snapshot           one rule, sync or note left out
python -m tests.campaign.replication --without all --seeds 20     each of them: a table
"""

import argparse
import time
from collections import Counter
from contextlib import suppress

from tests.campaign.replication.counted import shortfalls
from tests.campaign.replication.histories import PROFILES
from tests.campaign.replication.staged import STAGES, run
from tests.campaign.replication.without import PARTS, left_out

# A part counts as noticed after so many failing histories.
_NOTICED = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.replication")
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--seeds", type=int, default=50, help="without --minutes, of each profile")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--profile", choices=(*PROFILES, *STAGES), action="append")
    parser.add_argument("--without", choices=("all", *PARTS))
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    if given.without:
        return table(list(PARTS) if given.without == "all" else [given.without], given.first, given.seeds)
    until = time.process_time() + 60 * given.minutes
    bad = count = again = 0
    events: Counter[str] = Counter()
    seed = given.first
    stages = list(STAGES)
    # An interruption ends the run with its summary.
    with suppress(KeyboardInterrupt):
        while (time.process_time() < until) if given.minutes else (seed < given.first + given.seeds):
            for profile in given.profile or (*PROFILES, stages[seed % len(stages)]):
                history, found = run(profile, seed)
                events.update(history.events)
                count += 1
                again += history.promises.again
                events["finished by another owner"] += history.promises.by_another
                if found:
                    bad += 1
                    text = found[0] if given.verbose else found[0][-600:]
                    print(f"{profile} {seed}: {text} (+{len(found) - 1})", flush=True)
            seed += 1
    print(f"{count} histories, {bad} bad, {again} delivered again")
    print(dict(sorted(events.items())))
    short = [] if given.profile or count < 100 else shortfalls(events, count)
    for text in short:
        print(text)
    return bool(bad or short)


def table(names: list[str], first: int, seeds: int) -> int:
    """Print which histories fail without each part; the exit code says whether one was not noticed."""
    missed = 0
    print("|rule|left out|history|failing histories|first violation|\n|-|-|-|-|-|", flush=True)
    for name in names:
        part = PARTS[name]
        failing, count, text = _failing(name, part.history, first, seeds)
        missed += not failing
        print(f"|{part.rule or '-'}|{part.text}|{part.history}|{failing} of {count}|{text}|", flush=True)
    return bool(missed)


def _failing(name: str, profile: str, first: int, seeds: int) -> tuple[int, int, str]:
    failing, first_text = 0, ""
    for seed in range(first, first + seeds):
        with left_out(name):
            found = run(profile, seed)[1]
        if found:
            failing += 1
            first_text = first_text or found[0].strip().splitlines()[-1][:90]
            if failing == _NOTICED:
                return failing, seed - first + 1, first_text
    return failing, seeds, first_text


if __name__ == "__main__":
    raise SystemExit(main())
