"""Stands in for nsqd, nsqlookupd or nsqadmin on PATH: ``python daemon.py PROGRAM ARGUMENT...`` runs ours.

Our nsqd refuses to start with what it cannot do yet. The suites start it with a certificate even for tests
that never use TLS, so those flags are left out here; tests that do use TLS are not selected.
"""

import os
import sys

NOT_YET = ("tls-cert", "tls-key")


def supported(arguments):
    """The arguments without those flags, given as ``-x=v``, ``--x=v``, ``-x v`` or ``--x v``."""
    kept = []
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, _ = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or name not in NOT_YET:
            kept.append(argument)
        elif not equals:
            next(remaining, None)
    return kept


if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", sys.argv[1], *supported(sys.argv[2:])])
