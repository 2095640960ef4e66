"""Long runs of carried logs.

python -m tests.campaign.carried model 30000 [--without RULE]   the model of the rules
python -m tests.campaign.carried histories 20000 [--from SEED]  several nodes on simulated disks and networks
python -m tests.campaign.carried orphan 1024                    a data path of that many MB without a process
"""

import argparse
import time
from collections import Counter
from typing import Final

from tests.campaign.carried import orphan as orphans
from tests.campaign.carried.histories import CarriedHistory
from tests.campaign.carried.model import RULES, History

# A long run reports its progress after this many.
_TOLD_EVERY: Final = 500


def main() -> int:
    """Run many histories; the exit code says whether anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.carried")
    commands = parser.add_subparsers(dest="command", required=True)
    model = commands.add_parser("model")
    model.add_argument("seeds", type=int, nargs="?", default=2000)
    model.add_argument("--without", choices=RULES, action="append", default=[])
    model.add_argument("--leave", action="store_true", help="the home is handed over at some step")
    histories = commands.add_parser("histories")
    histories.add_argument("seeds", type=int, nargs="?", default=200)
    histories.add_argument("--from", dest="first", type=int, default=0)
    histories.add_argument("--power", action="store_true", help="power cuts, too")
    histories.add_argument(
        "--people", action="store_true", help="operators who delete, empty, seek, drain and copy"
    )
    histories.add_argument("--strict", action="store_true", help="with --sync-every=1")
    histories.add_argument("--replicas", type=int, default=1)
    orphan = commands.add_parser("orphan")
    orphan.add_argument("megabytes", type=int, nargs="?", default=1024)
    chosen = parser.parse_args()
    if chosen.command == "orphan":
        return not orphans.run(chosen.megabytes)
    return _model(chosen) if chosen.command == "model" else _histories(chosen)


def _model(chosen: argparse.Namespace) -> int:
    bad = done = again = carried = asides = handed = 0
    for seed in range(chosen.seeds):
        history = History(seed, frozenset(chosen.without), leaves=chosen.leave).run()
        lost = history.lost()
        again, carried, asides = again + history.again, carried + history.carried, asides + history.asides
        handed += history.handed
        done += sum(map(len, history.done.values()))
        bad += bool(lost)
        if lost and bad <= 3:
            print(f"seed {seed} lost {lost[:3]}")
    print(
        f"{chosen.seeds} histories, {bad} with a loss; {done} finished, {again} again; "
        f"{carried} by keepers; {asides} copies set aside; {handed} homes handed over; "
        f"without {chosen.without or 'nothing'}"
    )
    return bool(bad)


def _histories(chosen: argparse.Namespace) -> int:
    began, bad = time.monotonic(), 0
    sums: Counter[str] = Counter()
    deeds: Counter[str] = Counter()
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        history = CarriedHistory(
            seed,
            power=chosen.power,
            people=chosen.people,
            strict=chosen.strict,
            replicas=chosen.replicas,
        )
        try:
            lost = history.run().lost()
            deeds.update(history.deeds)
        except Exception as error:  # noqa: BLE001 - every error is reported
            lost = [f"{type(error).__name__}: {error}"]
            history.site.close()
        else:
            told = history.told
            sums["answered with OK and not waived since"] += len(told.made)
            sums["waived"] += told.waived
            sums["refused"] += told.refused
            sums["finished"] += sum(map(len, told.done.values()))
            sums["by keepers"] += told.carried
            sums["again"] += told.again
        bad += bool(lost)
        if lost and bad <= 10:
            print(f"seed {seed}: {lost[:3]}", flush=True)
        if (seed + 1 - chosen.first) % _TOLD_EVERY == 0:
            print(f"{seed + 1 - chosen.first} histories, {bad} with a violation", flush=True)
    figures = ", ".join(f"{count} {what}" for what, count in sums.items())
    print(", ".join(f"{count} {what}" for what, count in sorted(deeds.items())))
    print(f"{chosen.seeds} histories, {bad} with a violation; {figures}; {time.monotonic() - began:.0f} s")
    return bool(bad)


if __name__ == "__main__":
    raise SystemExit(main())
