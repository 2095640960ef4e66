"""Many histories of the model of carried logs; see `model`."""

import argparse

from tests.campaign.carried.model import RULES, History


def main() -> int:
    """Run many; losses decide the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.carried")
    parser.add_argument("seeds", type=int, nargs="?", default=2000)
    parser.add_argument("--without", choices=RULES, action="append", default=[])
    parser.add_argument("--seed", type=int, help="only this one, told step by step")
    chosen = parser.parse_args()
    bad = done = again = carried = asides = 0
    for seed in range(chosen.seeds) if chosen.seed is None else [chosen.seed]:
        history = History(seed, frozenset(chosen.without)).run()
        lost = history.lost()
        again, carried, asides = again + history.again, carried + history.carried, asides + history.asides
        done += sum(map(len, history.done.values()))
        bad += bool(lost)
        if lost and bad <= 3:
            print(f"seed {seed} lost {lost[:3]}")
        if chosen.seed is not None:
            print(*history.trace)
    print(
        f"{chosen.seeds} histories, {bad} with a loss; {done} finished, {again} again; "
        f"{carried} by keepers; {asides} copies set aside; without {chosen.without or 'nothing'}"
    )
    return bool(bad)


if __name__ == "__main__":
    raise SystemExit(main())
