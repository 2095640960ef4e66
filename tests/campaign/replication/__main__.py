"""Run histories: python -m tests.campaign.replication [--minutes N] [--profile P] [--from N] [--seeds N]"""

import argparse
import time
import traceback
from collections import Counter

from tests.campaign.replication.histories import PROFILES, History


def run(profile: str, seed: int) -> tuple[History, list[str]]:
    """One history and its violations; an exception is one."""
    history = History(seed, profile)
    try:
        return history, history.run().violations()
    except Exception:  # noqa: BLE001 - every error is reported
        return history, [traceback.format_exc()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.replication")
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--seeds", type=int, default=50, help="without --minutes, of each profile")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--profile", choices=PROFILES, action="append")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    bad = count = again = 0
    events: Counter[str] = Counter()
    seed = given.first
    while (time.monotonic() < until) if given.minutes else (seed < given.first + given.seeds):
        for profile in given.profile or PROFILES:
            history, found = run(profile, seed)
            events.update(history.events)
            count += 1
            again += history.promises.again
            events["finished by another owner"] += history.promises.by_another
            if found:
                bad += 1
                print(
                    f"{profile} {seed}: {found[0] if given.verbose else found[0][-600:]} (+{len(found) - 1})",
                    flush=True,
                )
        seed += 1
    print(f"{count} histories, {bad} bad, {again} delivered again")
    print(dict(sorted(events.items())))
    return bool(bad)


if __name__ == "__main__":
    raise SystemExit(main())
