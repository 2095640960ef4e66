"""Empty an nsqd before it is stopped: a preStop hook, or a command before a node is removed.

    python -m nsqd.drain --http-address=127.0.0.1:4151 --timeout=5m

The node says first that it is not ready, and accepts publishes for the time of --grace: load balancers and
nsqlookupd send producers to other nodes. Then it refuses publishes; consumers continue to read. The command
exits with 0 when nothing remains here. It exits with 1 and one sentence about the rest when none of it can go
by itself (it is paused, deferred for longer than the drain may take, or unread for as long as a consumer
needs to find it) or when the time is up. Messages never leave the node by a drain: see nsqd-decommission. If
the last scrape of /metrics saw messages, it waits for one more first.
"""

import http.client
import json
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from nsqclient.wire.durations import SECOND
from nsqcore.cluster.secret import NO_SECRET, SecretFile
from nsqcore.options.arguments import Address, ArgumentParser, duration_of
from nsqcore.process.output import write_message
from nsqd.engine.drain_report import sentence, stuck

POLL_SECONDS: Final = 0.25
# How often a line is printed at most, so that a log shows progress.
PROGRESS_INTERVAL_S: Final = 10.0
_ANSWER_SECONDS: Final = 5.0
# How long to wait for the next scrape of /metrics, which then reports an empty node. Otherwise the last
# metrics of a removed node in Prometheus would count messages that other nodes have delivered since.
SCRAPE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Where the nsqd is, and how long it may take to empty it."""

    http_address: str
    timeout_s: float
    grace_s: float
    """How long publishes are accepted before they are refused; the time-out begins after it."""
    secret: SecretFile = field(default=NO_SECRET, kw_only=True)
    tls: ssl.SSLContext | None = field(default=None, kw_only=True)
    """If set, ask over HTTPS; *http_address* is that of the HTTPS port then."""


@dataclass(frozen=True, slots=True)
class DrainOptions(NodeOptions):
    poll_interval_s: float


class DrainError(Exception):
    """The drain did not finish; the text says why."""


class NoAnswer(DrainError):
    """The node has not answered; it may be busy, or its connections are."""


def drain(options: DrainOptions) -> None:
    """Start the drain and wait for its end; the time-out begins after the grace. Raises DrainError."""
    address = options.http_address
    ask = partial(ask_node, options, "/drain")
    poll_ms = round(options.poll_interval_s * 1000)
    announce(options)
    began = time.monotonic()
    said = -PROGRESS_INTERVAL_S
    until = began + options.timeout_s
    state = _answer(ask, until, "POST")
    left_ms = 0
    while not state["drained"]:
        left_ms = round((options.timeout_s - (time.monotonic() - began)) * 1000)
        if left_ms <= 0 or stuck(state, poll_ms, left_ms):
            break
        passed = time.monotonic() - began
        if state["remaining"] and passed - said >= PROGRESS_INTERVAL_S:
            said = passed
            _print_progress(f"draining {address}: {sentence(state)}")
        time.sleep(POLL_SECONDS)
        state = _answer(ask, until, "GET")
        if not state["draining"]:
            raise DrainError("the drain was cancelled, or ended by a restart; the node accepts publishes")
    drained = time.monotonic()
    seen_by = min(drained + SCRAPE_SECONDS, until)
    while state["drained"] and state.get("scraped_with_backlog") and time.monotonic() < seen_by:
        time.sleep(POLL_SECONDS)
        try:
            state |= {"scraped_with_backlog": ask("GET").get("scraped_with_backlog")}
        except DrainError:
            break  # it is drained, whether it answers or not
    if not state["drained"]:
        raise DrainError(sentence(state, 0, left_ms))


def announce(options: NodeOptions) -> None:
    """Let the node say that it is not ready, and give publishers time to go to others. Raises DrainError."""
    if options.grace_s:
        until = time.monotonic() + options.grace_s
        ask = partial(ask_node, options, "/drain")
        _answer(ask, until, "POST", f"?grace={round(options.grace_s * 1000)}")
        time.sleep(max(0.0, until - time.monotonic()))


def _answer(ask: Callable[..., dict[str, Any]], until: float, *request: str) -> dict[str, Any]:
    """Ask until there is an answer, because one slow answer must not end a drain of hours. Raises DrainError.

    When no process listens at the address, the process is gone, and with it the drain.
    """
    while True:
        try:
            return ask(*request)
        except NoAnswer as error:
            if isinstance(error.__cause__, ConnectionRefusedError) or time.monotonic() >= until:
                raise
        time.sleep(POLL_SECONDS)


def _print_progress(line: str) -> None:
    """Show the progress on stdout; a drain continues, and succeeds, also when stdout is closed."""
    write_message(line, sys.stdout)


def ask_node(options: NodeOptions, path: str, method: str, query: str = "") -> dict[str, Any]:
    """The node's answer. Raises DrainError, which is NoAnswer if there is none."""
    address = options.http_address
    url = f"{'https' if options.tls else 'http'}://{address}{path}"
    connection = (
        http.client.HTTPConnection(address, timeout=_ANSWER_SECONDS)
        if options.tls is None
        else http.client.HTTPSConnection(address, timeout=_ANSWER_SECONDS, context=options.tls)
    )
    try:
        connection.request(method, f"{path}{query}", headers=options.secret.headers())
        response = connection.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            raise DrainError(f"{method} {url}: {response.status} {_refusal(body)}")
        state: dict[str, Any] = json.loads(body)
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(f"{method} {url}: {error or type(error).__name__}") from error
    except ValueError as error:
        raise DrainError(f"{method} {url}: {error}") from error
    else:
        return state
    finally:
        connection.close()


def _refusal(body: bytes) -> str:
    """The reason in the body of an answer, in one line of printable characters."""
    text = body[:200].decode("utf-8", "replace")
    port = None
    with suppress(ValueError, TypeError, KeyError):
        answer = json.loads(body)
        text, port = str(answer["message"])[:200], answer.get("https_port")
    if text == "TLS_REQUIRED" and port:
        text = f"TLS_REQUIRED: use --https-address with port {port}"
    return "".join(one if one.isprintable() else " " for one in text).strip()


def add_node_arguments(parser: ArgumentParser) -> None:
    """Add the flags that say how to ask the nsqd, and how long publishes are accepted."""
    add = parser.add_argument
    add(
        "--http-address",
        default="127.0.0.1:4151",
        type=Address(4151),
        metavar="HOST:PORT",
        help="of the nsqd",
    )
    add(
        "--grace",
        default=0,
        type=duration_of,
        metavar="DURATION",
        help="accept publishes so long while producers are sent to other nodes",
    )
    add("--https-address", type=Address(4152), metavar="HOST:PORT", help="instead: ask over HTTPS")
    add(
        "--tls-root-ca-file",
        default="",
        metavar="FILE",
        help="trusted certificate authorities, instead of those of the system",
    )
    add("--tls-skip-verify", action="store_true", help="accept any certificate, as of an nsqd at 127.0.0.1")
    add(
        "--auth-secret-file",
        default="",
        metavar="FILE",
        help="with the AUTH secret, for an nsqd with --http-auth",
    )


def argument_parser() -> ArgumentParser:
    parser = ArgumentParser(prog="nsqd-drain", description="Empty an nsqd before it is stopped.")

    def duration(flag: str, default: int, text: str) -> None:
        parser.add_argument(flag, default=default, type=duration_of, metavar="DURATION", help=text)

    add_node_arguments(parser)
    duration("--timeout", 300 * SECOND, "how long it may take, such as 5m")
    duration(
        "--poll-interval",
        60 * SECOND,
        "how often consumers look for topics; topics without consumers for that long are not waited for",
    )
    return parser


def parse_arguments(argv: Sequence[str] | None) -> DrainOptions:
    given = argument_parser().parse_args(argv)
    return DrainOptions(
        http_address=given.https_address or given.http_address,
        timeout_s=given.timeout / SECOND,
        grace_s=given.grace / SECOND,
        poll_interval_s=given.poll_interval / SECOND,
        secret=SecretFile(given.auth_secret_file),
        tls=trust(given.tls_root_ca_file, verify=not given.tls_skip_verify) if given.https_address else None,
    )


def trust(authorities: str, *, verify: bool) -> ssl.SSLContext:
    """The certificates that are accepted from the nsqd. Raises OSError."""
    if not verify:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    return ssl.create_default_context(cafile=authorities or None)


def main(argv: Sequence[str] | None = None) -> int:
    try:
        options = parse_arguments(argv)
    except OSError as error:
        write_message(f"nsqd-drain: --tls-root-ca-file: {error.strerror or error}")
        return 1
    try:
        drain(options)
    except DrainError as error:
        write_message(f"nsqd-drain: {error}")
        return 1
    _print_progress(f"{options.http_address} is drained")
    return 0


if __name__ == "__main__":
    sys.exit(main())
