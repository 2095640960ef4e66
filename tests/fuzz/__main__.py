"""``python -m tests.fuzz``: run the fuzzers for some time, each for its share."""

import argparse
import importlib
import pkgutil
import sys
import time

from hypothesis import HealthCheck, settings

from tests import fuzz

# Examples of a round; the time is looked at after each.
EXAMPLES = 200


def found() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(fuzz.__path__) if module.name != "__main__")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(found())} (default: all)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=60,
        help="processor time of all fuzzers together (default: %(default)s)",
    )
    args = parser.parse_args()
    # A failing example is kept in .hypothesis and is tried first the next time.
    settings.register_profile(
        "fuzz", max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck)
    )
    settings.load_profile("fuzz")
    names = args.names or found()
    for name in names:
        began = time.process_time()
        module = importlib.import_module(f"tests.fuzz.{name}")
        rounds = 0
        try:
            while not rounds or time.process_time() < began + args.seconds / len(names):
                module.fuzz()
                rounds += 1
        finally:
            getattr(module, "close", lambda: None)()
        print(f"{name}: {rounds * EXAMPLES} examples in {time.process_time() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
