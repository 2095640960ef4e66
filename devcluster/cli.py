"""The ``nsq-cluster`` command."""

import argparse
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from devcluster.layout import HOST, MAX_PORT_OFFSET, ClusterLayout, DaemonPlan, plan_cluster
from nsqcore.options.arguments import ArgumentParser
from nsqcore.process.output import write_message


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cluster until a signal; the exit code is 0 then, 1 if something failed, 2 for bad flags."""
    options = _parse(sys.argv[1:] if argv is None else argv)
    layout = plan_cluster(options.data.resolve(), options.port_offset, sign_in=options.sign_in)
    if taken := _taken_ports(layout.listening):
        return _fail(f"already in use: {', '.join(taken)}; stop what listens there or pass --port-offset.")
    try:
        _prepare_folders(layout, fresh=options.fresh)
    except OSError as error:
        return _fail(f"cannot prepare the data folder {options.data}: {error}")
    # Loading this takes half a second, so it is not loaded for --help or after a mistake.
    import asyncio

    from devcluster.runner import run

    return asyncio.run(
        run(layout, rate=options.rate if options.traffic else 0, status_every=options.status_every)
    )


def argument_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="nsq-cluster",
        description="Run nsqlookupd, two nsqd and nsqadmin on this machine, with sample traffic.",
        epilog="Ctrl-C stops everything.",
    )
    parser.add_argument("--data", type=Path, default=Path("data"), metavar="FOLDER", help="default: ./data")
    parser.add_argument("--fresh", action="store_true", help="delete the data of the last run first")
    parser.add_argument("--port-offset", type=int, default=0, metavar="N", help="add N to every port")
    parser.add_argument("--no-traffic", dest="traffic", action="store_false", help="no sample messages")
    parser.add_argument(
        "--rate", type=float, default=50, metavar="N", help="sample messages a second, default 50"
    )
    parser.add_argument(
        "--status-every",
        type=float,
        default=10,
        metavar="SECONDS",
        help="a line of statistics this often, default 10",
    )
    parser.add_argument(
        "--sign-in",
        action="store_true",
        help="people sign in to nsqadmin, at an OpenID provider that runs here and believes everybody",
    )
    return parser


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argument_parser()
    arguments = parser.parse_args(argv)
    if not 0 <= arguments.port_offset <= MAX_PORT_OFFSET:
        parser.error(f"--port-offset must be 0..{MAX_PORT_OFFSET}")
    if not 0 < arguments.rate <= 10_000:
        parser.error("--rate must be above 0 and at most 10000; --no-traffic switches it off")
    if arguments.status_every <= 0:
        parser.error("--status-every must be above 0")
    return arguments


def _taken_ports(daemons: list[DaemonPlan]) -> list[str]:
    """Return the ports of the plan on which another program listens, each with its use."""
    return [
        f"port {port} ({daemon.name} {kind.upper()})"
        for daemon in daemons
        for kind, port in daemon.ports.items()
        if not _is_free(port)
    ]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the daemons do: lingering connections of an earlier run do not count as listeners.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _prepare_folders(layout: ClusterLayout, *, fresh: bool) -> None:
    kept = [] if layout.secret_file is None else [layout.secret_file.parent]
    for folder in [layout.logs, *kept, *(daemon.folder for daemon in layout.daemons if daemon.folder)]:
        if fresh and folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)


def _fail(sentence: str) -> int:
    write_message(f"nsq-cluster: {sentence}")
    return 1
