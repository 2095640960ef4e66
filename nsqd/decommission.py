"""Transfer all logs of an nsqd to other nodes, before it is removed.

    nsqd-decommission --http-address=127.0.0.1:4151 --timeout=1h
    nsqd-decommission --to=mq-nsqd-0:4150

Publishes are refused from the start. A replica that has everything takes each log over; its consumers read
the pending messages there. The command exits with 0 when nothing remains here, and with 1 and one sentence
when the time is up. The node stays decommissioned until it is stopped or the decommission is cancelled.
"""

import http.client
import json
import ssl
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from nsqclient.wire.durations import SECOND
from nsqcore.cluster.secret import NO_SECRET, SecretFile
from nsqcore.options.arguments import Address, ArgumentParser, duration_of
from nsqcore.process.output import tell
from nsqd.drain import add_address_arguments, trust

POLL_SECONDS: Final = 0.5
SAY_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class DecommissionOptions:
    """The flags. *to* is empty for a replica; with *tls* the address is that of the HTTPS port."""

    http_address: str
    timeout_s: float
    to: str = ""
    fewer_copies: bool = False
    secret: SecretFile = NO_SECRET
    tls: ssl.SSLContext | None = None


class DecommissionError(Exception):
    """Something remains; the text says what it waits for."""


def decommission(options: DecommissionOptions) -> None:
    """Begin, and wait until nothing remains. Raises DecommissionError."""
    query = {"target": options.to} if options.to else {}
    query |= {"fewer_copies": "true"} if options.fewer_copies else {}
    until = time.monotonic() + options.timeout_s
    state = _ask(options, "POST", f"?{urlencode(query)}" if query else "")
    said = -SAY_SECONDS
    while not state["done"]:
        now = time.monotonic()
        if now >= until:
            raise DecommissionError(
                f"the time is up: {state['remaining']} messages remain, it waits for {state['waits_for']}"
            )
        if now - said >= SAY_SECONDS:
            said = now
            tell(f"{options.http_address}: {state['remaining']} messages remain", sys.stdout)
        time.sleep(POLL_SECONDS)
        try:
            state = _ask(options, "GET", "")
        except DecommissionError:
            # One slow answer must not end a transfer of hours.
            if time.monotonic() >= until:
                raise
            continue
        if not state["decommissioning"]:
            raise DecommissionError("it was cancelled, or the node has started again")


def _ask(options: DecommissionOptions, method: str, query: str) -> dict[str, Any]:
    """The node's answer. Raises DecommissionError."""
    address = options.http_address
    connection = (
        http.client.HTTPConnection(address, timeout=_ANSWER_SECONDS)
        if options.tls is None
        else http.client.HTTPSConnection(address, timeout=_ANSWER_SECONDS, context=options.tls)
    )
    try:
        connection.request(method, f"/decommission{query}", headers=options.secret.headers())
        response = connection.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            raise DecommissionError(
                f"{method} http://{address}/decommission: {response.status} {body[:200]!r}"
            )
        state: dict[str, Any] = json.loads(body)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DecommissionError(
            f"{method} http://{address}/decommission: {error or type(error).__name__}"
        ) from error
    else:
        return state
    finally:
        connection.close()


def argument_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="nsqd-decommission", description="Transfer all logs of an nsqd to other nodes."
    )
    add_address_arguments(parser)
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
        to=given.to or "",
        fewer_copies=given.fewer_copies,
        secret=SecretFile(given.auth_secret_file),
        tls=trust(given.tls_root_ca_file, verify=not given.tls_skip_verify) if given.https_address else None,
    )


def main(argv: Sequence[str] | None = None) -> int:
    try:
        options = parse_arguments(argv)
        decommission(options)
    except (OSError, DecommissionError) as error:
        tell(f"nsqd-decommission: {error}")
        return 1
    tell(f"{options.http_address} is decommissioned", sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
