"""``python -m tests.fuzz``: run the fuzzers for a number of examples each, or for some time together."""

import argparse
import importlib
import pkgutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

from hypothesis import HealthCheck, settings

from tests import fuzz

EXAMPLES = 1000


def found() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(fuzz.__path__) if module.name != "__main__")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(found())} (default: all)")
    parser.add_argument(
        "--examples", type=int, default=EXAMPLES, help="of each in a run (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=0, help="go on with new examples for so long")
    parser.add_argument(
        "--part", default="1/1", metavar="N/M", help="only each M-th of them, from the N-th on"
    )
    args = parser.parse_args()
    # A failing example is kept in .hypothesis and is tried first the next time.
    settings.register_profile(
        "fuzz", max_examples=args.examples, deadline=None, suppress_health_check=list(HealthCheck)
    )
    settings.load_profile("fuzz")
    part, parts = map(int, args.part.split("/"))
    names = (args.names or found())[part - 1 :: parts]
    until = time.monotonic() + args.seconds
    with ExitStack() as opened:
        targets: list[tuple[str, Callable[[], None]]] = []
        for name in names:
            module = importlib.import_module(f"tests.fuzz.{name}")
            targets.append((name, module.fuzz))
            opened.callback(getattr(module, "close", lambda: None))
        rounds = 0
        while not rounds or time.monotonic() < until:
            for name, target in targets:
                began = time.monotonic()
                target()
                print(f"{name}: {args.examples} examples in {time.monotonic() - began:.1f} s", flush=True)
            rounds += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
