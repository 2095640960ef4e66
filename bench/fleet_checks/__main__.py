"""``python -m bench.fleet_checks``: compares the predictions of the fleet model with measurements.

Small fleets are measured first and give the constants. With these the model predicts 50 real nsqd, and 1,000
stubs, which are measured next.
"""

import argparse
import json
import os
import resource
import sys
from dataclasses import fields

import uvloop

from bench.fleet_checks.admin import check_admin
from bench.fleet_checks.consumer import consume
from bench.fleet_checks.lookupd import check_lookupd
from bench.fleet_checks.one_nsqd import one_nsqd
from bench.fleet_checks.real import check_real
from bench.fleet_checks.rows import HEADER
from bench.fleet_model import Constants


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet_checks", description=__doc__)
    parser.add_argument("what", choices=["real", "lookupd", "admin", "nsqd", "consumer"])
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--nsqds", type=int, help="how many are predicted (50 real ones, 1000 stubs)")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long nsqadmin is watched")
    args = parser.parse_args(argv)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 1 << 16)), hard))
    if args.what == "consumer":
        lookupd, nsqds, topics = args.rest
        uvloop.run(consume(lookupd, int(nsqds), int(topics)))
        return 0
    if args.what == "nsqd":
        print(json.dumps(one_nsqd()))
        return 0
    if args.what == "real":
        constants, rows = check_real(args.nsqds or 50)
    elif args.what == "lookupd":
        constants, rows = check_lookupd(args.nsqds or 1000)
    else:
        constants, rows = check_admin(args.nsqds or 1000, args.seconds)
    print(HEADER)
    for row in rows:
        print(row.line())
    found = {one.name: getattr(constants, one.name) for one in fields(Constants)}
    default = Constants()
    print(json.dumps({k: round(v, 3) for k, v in found.items() if v != getattr(default, k)}))
    print(f"load average {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
