"""Put each fault of the catalogue into a copy of the project and check that it is caught.

python -m tests.campaign.mutations                        all of them, two at a time
python -m tests.campaign.mutations compaction-not-synced  some of them
python -m tests.campaign.mutations outside                a group: inside (the engine) or outside
python -m tests.campaign.mutations --check                only check that each can be applied
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from tests.campaign.mutations.catalogue import GROUPS, MUTATIONS
from tests.campaign.mutations.mutation import Mutation
from tests.campaign.mutations.trial import ROOT, Outcome, attempt, copied_project


def main() -> int:
    """Try the mutations; the exit code says whether one was not caught or could not be applied."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.mutations")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true", help="only see that each can be applied")
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    names = {mutation.name for mutation in MUTATIONS}
    if unknown := set(chosen.names) - names - GROUPS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    wanted = set(chosen.names or names)
    for group in GROUPS.keys() & wanted:
        wanted |= {mutation.name for mutation in GROUPS[group]}
    mutations = [one for one in MUTATIONS if one.name in wanted]
    if chosen.check:
        stale = [text for one in mutations if (text := one.why_stale(ROOT))]
        print("\n".join([*stale, f"{len(mutations)} mutations, {len(stale)} cannot be applied"]))
        return bool(stale)
    outcomes = _attempt_all(mutations, chosen.jobs)
    bad = [one for one in outcomes if not one.verdict.is_good]
    counts = {one.verdict: 0 for one in outcomes}
    for one in outcomes:
        counts[one.verdict] += 1
    print(f"{len(outcomes)} mutations:", ", ".join(f"{n} {verdict}" for verdict, n in counts.items()))
    return bool(bad)


def _attempt_all(mutations: list[Mutation], jobs: int) -> list[Outcome]:
    queue: SimpleQueue[Mutation] = SimpleQueue()
    for one in mutations:
        queue.put(one)

    def work() -> list[Outcome]:
        outcomes: list[Outcome] = []
        with copied_project() as copy:
            while not queue.empty():
                outcome = attempt(queue.get(), copy)
                print(
                    f"{outcome.verdict:<10} {outcome.mutation.name:<40} {outcome.seconds:4.0f} s  "
                    f"{outcome.command}: {outcome.evidence}",
                    flush=True,
                )
                outcomes.append(outcome)
        return outcomes

    jobs = min(jobs, len(mutations))
    with ThreadPoolExecutor(jobs) as pool:
        return [outcome for some in pool.map(lambda _: work(), range(jobs)) for outcome in some]


if __name__ == "__main__":
    sys.exit(main())
