"""Starts the cluster, keeps it running, and stops it in order."""

import asyncio
import logging
import os
import secrets
import signal
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Final

from devcluster.layout import PEOPLE, ClusterLayout, DaemonPlan
from devcluster.process import DaemonFailedError, DaemonProcess
from devcluster.traffic import CHANNELS, TOPICS, Traffic
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.nsqd_api import NsqdApi
from nsqcore.process.lifecycle import handle_signal
from nsqcore.process.output import write_message

# How long a daemon that has ended stays away, so that people can see what that costs.
RESTART_SECONDS: Final = 10.0
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run(layout: ClusterLayout, *, rate: float, status_every: float) -> int:
    """Run until a signal or a failure; return the exit code. *rate* 0 means no sample traffic."""
    _log_clients_to(layout.logs / "traffic.log")
    daemons = [DaemonProcess(plan, layout.logs) for plan in layout.daemons]
    cluster = asyncio.create_task(_run_cluster(layout, daemons, rate, status_every))
    _stop_on_signals(cluster, daemons)
    try:
        await cluster
    except asyncio.CancelledError:
        _print("Stopped.")
        return 0
    except (DaemonFailedError, NodeError, OSError) as error:
        write_message(f"nsq-cluster: {error}")
    return 1


async def _run_cluster(
    layout: ClusterLayout, daemons: list[DaemonProcess], rate: float, status_every: float
) -> None:
    """Start all daemons in order and keep them alive; at the end they stop in the opposite order."""
    async with AsyncExitStack() as stack:
        if layout.provider is not None and layout.secret_file is not None:
            await stack.enter_async_context(_provider(layout.provider, layout.secret_file))
        for daemon in daemons:
            stack.push_async_callback(_stop, daemon)
            await daemon.start()
        http = await stack.enter_async_context(ClusterHttp())
        traffic = Traffic(layout, rate) if rate else None
        if traffic is not None:
            stack.push_async_callback(traffic.close)
            await traffic.start(http)
        _print(_welcome(layout, daemons, rate))
        async with asyncio.TaskGroup() as tasks:
            for daemon in daemons:
                tasks.create_task(_keep_alive(daemon), name=daemon.plan.name)
            if traffic is not None:
                tasks.create_task(traffic.run(), name="sample traffic")
            tasks.create_task(_report(layout, http, traffic, status_every), name="status")


def _provider(plan: DaemonPlan, secret_file: Path) -> AbstractAsyncContextManager[object]:
    """Serve the provider, with a new secret each time. Raises OSError."""
    # Only sign-in needs these libraries, so they are loaded here.
    from devcluster.provider import provider

    secret = secrets.token_urlsafe(32)
    secret_file.touch(0o600)
    secret_file.write_text(secret)
    return provider(secret, port=plan.ports["http"])


async def _stop(daemon: DaemonProcess) -> None:
    if problem := await daemon.stop():
        write_message(f"nsq-cluster: {problem}")


def _stop_on_signals(cluster: asyncio.Task[None], daemons: list[DaemonProcess]) -> None:
    """Stop in order at the first signal, and immediately at a second one."""
    seen: list[bool] = []

    def on_signal() -> None:
        if seen:
            for daemon in daemons:
                daemon.kill()
            return
        seen.append(True)
        cluster.cancel()
        _print("Stopping ...")

    for number in _STOP_SIGNALS:
        handle_signal(number, on_signal)


# --- daemons that end


async def _keep_alive(daemon: DaemonProcess) -> None:
    """Watch one daemon until cancelled, and start it again when it ends; the other daemons continue."""
    while True:
        ended = await daemon.ended()
        again = f"{daemon.plan.name} starts again in {RESTART_SECONDS:g} s."
        _log(f"{ended}\n           The other daemons continue. {again}")
        await asyncio.sleep(RESTART_SECONDS)
        try:
            await daemon.start()
        except DaemonFailedError as failure:
            daemon.kill()
            _log(str(failure))
        else:
            _log(f"{daemon.plan.name} runs again (pid {daemon.pid}).")


# --- output for the terminal


def _welcome(layout: ClusterLayout, daemons: list[DaemonProcess], rate: float) -> str:
    lines = ["The NSQ cluster is running.", "", f"  admin UI     http://{layout.admin.address('http')}/"]
    lines += [
        f"  {plan.name:<12} tcp {plan.address('tcp'):<16} http {plan.address('http'):<16} pid {daemon.pid}"
        for daemon in daemons
        if "tcp" in (plan := daemon.plan).ports
    ]
    lines += [f"  logs         {_shorten(layout.logs)}", ""]
    if layout.provider is not None:
        who = ", ".join(f"{name} ({may})" for name, may in PEOPLE)
        lines += [f"The admin UI asks who you are: {who}.", ""]
    if rate:
        lines.append(
            f"Sample traffic: {rate:g} messages a second into {', '.join(TOPICS)};"
            f" channels {' and '.join(CHANNELS)} read them."
        )
        lines.append(
            f"To see what a crash costs, kill -9 an nsqd: it comes back after {RESTART_SECONDS:g} seconds."
        )
    lines += ["Ctrl-C stops everything.", ""]
    return "\n".join(lines)


async def _report(layout: ClusterLayout, http: ClusterHttp, traffic: Traffic | None, every: float) -> None:
    """Print a line of statistics every *every* seconds."""
    while True:
        await asyncio.sleep(every)
        statistics = await _statistics(layout, http)
        _log(f"{statistics}   |   {traffic.statistics()}" if traffic else statistics)


async def _statistics(layout: ClusterLayout, http: ClusterHttp) -> str:
    messages = waiting = in_flight = 0
    unreachable = []
    for nsqd in layout.nsqds:
        try:
            stats = await NsqdApi(http, nsqd.address("http")).stats(include_clients=False)
        except NodeError:
            unreachable.append(nsqd.name)
            continue
        for topic in stats.topics:
            messages += topic.message_count
            waiting += topic.depth + sum(channel.depth for channel in topic.channels)
            in_flight += sum(channel.in_flight_count for channel in topic.channels)
    statistics = f"{messages:,} messages, {waiting:,} waiting, {in_flight:,} in flight"
    return f"{statistics}   ({' and '.join(unreachable)} did not answer)" if unreachable else statistics


def _print(text: str) -> None:
    write_message(text, sys.stdout)


def _log(text: str) -> None:
    _print(f"{datetime.now().astimezone():%H:%M:%S}   {text}")


def _shorten(path: Path) -> str:
    """Write the path as a person would type it from here."""
    short = os.path.relpath(path)
    return str(path) if short.startswith("..") else f"./{short}"


def _log_clients_to(path: Path) -> None:
    """Log reconnects of the sample traffic to a file, because they do not belong between the statistics."""
    handler = logging.FileHandler(path, mode="w", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger("nsqclient").addHandler(handler)
    logging.getLogger("nsqclient").propagate = False
