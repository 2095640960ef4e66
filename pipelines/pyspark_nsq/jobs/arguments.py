"""The command lines of the jobs: one sentence for a mistake, and flags that several jobs share."""

import argparse
import re
import sys
from difflib import get_close_matches
from typing import Final, NoReturn

_UNKNOWN: Final = re.compile(r"unrecognized arguments: (--?[\w-]+)")


class JobArguments(argparse.ArgumentParser):
    """Reports a mistake in one sentence, without a page of usage, and exits with code 2."""

    def error(self, message: str) -> NoReturn:
        if match := _UNKNOWN.match(message):
            flags = [flag for action in self._actions for flag in action.option_strings]
            near = get_close_matches(match[1], flags, 1, 0.8)
            message += f"; is {near[0]} meant?" if near else ""
        end = "" if message.endswith("?") else ";"
        self.exit(2, f"{self.prog}: {message}{end} {self.prog} --help lists all flags\n")

    def add_nodes(self) -> None:
        """Add the flags that say which nodes there are and how they are asked."""
        add = self.add_argument
        for flag, about in (
            ("--lookupd-http-address", "may be repeated"),
            ("--nsqd-http-address", "instead of nsqlookupd"),
        ):
            add(flag, action="append", default=[], metavar="HOST:PORT", help=about)
        add(
            "--auth-secret-file",
            default="",
            metavar="FILE",
            help="with the AUTH secret, for nsqd with --http-auth; every executor reads it",
        )
        add(
            "--auth-allow-cleartext",
            action="store_true",
            help="send the AUTH secret without TLS also to nsqds that nsqlookupd named",
        )
        add("--tls-root-ca-file", default="", metavar="FILE", help="trusted certificates, if nsqd has HTTPS")


def options_of_nodes(given: argparse.Namespace) -> dict[str, str]:
    """Return the options of the data source that belong to the flags of ``add_nodes``."""
    return {
        "lookupdHttpAddresses": ",".join(given.lookupd_http_address),
        "nsqdHttpAddresses": ",".join(given.nsqd_http_address),
        "authSecretFile": given.auth_secret_file,
        "authAllowCleartext": str(given.auth_allow_cleartext).lower(),
        "tlsRootCaFile": given.tls_root_ca_file,
    }


def fail(program: str, reason: str) -> int:
    """Print the sentence of a failure; return the exit code."""
    print(f"{program}: {reason}", file=sys.stderr)
    return 1
