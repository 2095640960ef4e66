"""Transfer all logs of an nsqd to other nodes, before it is removed.

    nsqd-decommission --http-address=127.0.0.1:4151 --timeout=1h
    nsqd-decommission --to=mq-nsqd-0:4150

Publishes are refused once the time of --grace is over. A replica that has everything takes each log over; its
consumers read the pending messages there. The command exits with 0 when nothing remains here, and with 1 and
one sentence when the time is up. The node stays decommissioned until it is stopped or the decommission is
cancelled.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from nsqclient.wire.durations import SECOND
from nsqcore.cluster.secret import SecretFile
from nsqcore.options.arguments import Address, ArgumentParser, duration_of
from nsqcore.process.output import write_message
from nsqd.drain import DrainError, NodeOptions, add_node_arguments, announce, ask_node, trust

POLL_SECONDS: Final = 0.5
PROGRESS_INTERVAL_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class DecommissionOptions(NodeOptions):
    to: str = ""
    """TCP address of the node that takes the logs over. Empty: a replica does."""
    fewer_copies: bool = False


def decommission(options: DecommissionOptions) -> None:
    """Begin, and wait until nothing remains. Raises DrainError, also if something remains."""
    query = {"target": options.to} if options.to else {}
    query |= {"fewer_copies": "true"} if options.fewer_copies else {}
    ask = partial(ask_node, options, "/decommission")
    announce(options)
    until = time.monotonic() + options.timeout_s
    state = ask("POST", f"?{urlencode(query)}" if query else "")
    said = -PROGRESS_INTERVAL_S
    while not state["done"]:
        now = time.monotonic()
        if now >= until:
            raise DrainError(f"the time is up: {remaining(state)}, it waits for {state['waits_for']}")
        if now - said >= PROGRESS_INTERVAL_S:
            said = now
            write_message(f"{options.http_address}: {remaining(state)}", sys.stdout)
        time.sleep(POLL_SECONDS)
        try:
            state = ask("GET")
        except DrainError:
            # One slow answer must not end a transfer of hours.
            if time.monotonic() >= until:
                raise
            continue
        if not state["decommissioning"]:
            raise DrainError("it was cancelled, or the node has started again")


def argument_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="nsqd-decommission", description="Transfer all logs of an nsqd to other nodes."
    )
    add_node_arguments(parser)
    parser.add_argument(
        "--to", type=Address(4150), metavar="HOST:PORT", help="TCP address of the nsqd that takes them over"
    )
    parser.add_argument(
        "--fewer-copies", action="store_true", help="also when fewer replicas than wanted remain"
    )
    parser.add_argument(
        "--timeout", default=3600 * SECOND, type=duration_of, metavar="DURATION", help="how long it may take"
    )
    return parser


def parse_arguments(argv: Sequence[str] | None) -> DecommissionOptions:
    given = argument_parser().parse_args(argv)
    return DecommissionOptions(
        http_address=given.https_address or given.http_address,
        timeout_s=given.timeout / SECOND,
        grace_s=given.grace / SECOND,
        to=given.to or "",
        fewer_copies=given.fewer_copies,
        secret=SecretFile(given.auth_secret_file),
        tls=trust(given.tls_root_ca_file, verify=not given.tls_skip_verify) if given.https_address else None,
    )


def remaining(state: dict[str, Any]) -> str:
    """The number of messages that remain, in words."""
    count = state["remaining"]
    return "1 message remains" if count == 1 else f"{count} messages remain"


def main(argv: Sequence[str] | None = None) -> int:
    try:
        options = parse_arguments(argv)
        decommission(options)
    except (OSError, DrainError) as error:
        write_message(f"nsqd-decommission: {error}")
        return 1
    write_message(f"{options.http_address} is decommissioned", sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
