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

from devcluster.keyboard import Keyboard
from devcluster.layout import PEOPLE, ClusterLayout, DaemonPlan
from devcluster.process import DaemonFailedError, DaemonProcess
from devcluster.reviving import keep_alive
from devcluster.traffic import CHANNELS, TOPICS, Traffic
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.nsqd_api import NsqdApi
from nsqcore.process.lifecycle import handle_signal
from nsqcore.process.output import tell

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run(layout: ClusterLayout, *, rate: float, status_every: float) -> int:
    """Run until a signal or a failure; return the exit code. *rate* 0 means no sample traffic."""
    _log_clients_to(layout.logs / "traffic.log")
    daemons = [DaemonProcess(plan, layout.logs) for plan in layout.daemons]
    life = asyncio.create_task(_live(layout, daemons, rate, status_every))
    _stop_on_signals(life, daemons)
    try:
        await life
    except asyncio.CancelledError:
        _say("Stopped.")
        return 0
    except (DaemonFailedError, NodeError, OSError) as error:
        tell(f"nsq-cluster: {error}")
    return 1


async def _live(
    layout: ClusterLayout, daemons: list[DaemonProcess], rate: float, status_every: float
) -> None:
    """Start all daemons in order and keep them alive; at the end they stop in the opposite order."""
    async with AsyncExitStack() as stack:
        if layout.provider is not None and layout.secret_file is not None:
            await stack.enter_async_context(_signing_in(layout.provider, layout.secret_file))
        for daemon in daemons:
            stack.push_async_callback(_stop, daemon)
            await daemon.start()
        http = await stack.enter_async_context(ClusterHttp())
        traffic = Traffic(layout, rate) if rate else None
        if traffic is not None:
            stack.push_async_callback(traffic.close)
            await traffic.start(http)
        _say(_welcome(layout, daemons, rate))
        keyboard = Keyboard()
        stack.callback(keyboard.close)
        async with asyncio.TaskGroup() as tasks:
            for daemon in daemons:
                tasks.create_task(keep_alive(daemon, keyboard, _say_when), name=daemon.plan.name)
            if traffic is not None:
                tasks.create_task(traffic.run(), name="sample traffic")
            tasks.create_task(_report(layout, http, traffic, status_every), name="status")


def _signing_in(plan: DaemonPlan, secret_file: Path) -> AbstractAsyncContextManager[object]:
    """Serve the provider, with a new secret each time. Raises OSError."""
    # Only sign-in needs these libraries, so they are loaded here.
    from devcluster.provider import provider

    secret = secrets.token_urlsafe(32)
    secret_file.touch(0o600)
    secret_file.write_text(secret)
    return provider(secret, port=plan.ports["http"])


async def _stop(daemon: DaemonProcess) -> None:
    if complaint := await daemon.stop():
        tell(f"nsq-cluster: {complaint}")


def _stop_on_signals(life: asyncio.Task[None], daemons: list[DaemonProcess]) -> None:
    """Stop in order at the first signal, and immediately at a second one."""
    seen: list[bool] = []

    def on_signal() -> None:
        if seen:
            for daemon in daemons:
                daemon.kill()
            return
        seen.append(True)
        life.cancel()
        _say("Stopping ...")

    for number in _STOP_SIGNALS:
        handle_signal(number, on_signal)


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
            "To see what a crash costs, kill -9 an nsqd and press Enter here when it is to come back."
        )
    lines += ["Ctrl-C stops everything.", ""]
    return "\n".join(lines)


async def _report(layout: ClusterLayout, http: ClusterHttp, traffic: Traffic | None, every: float) -> None:
    """Print a line of figures every *every* seconds."""
    while True:
        await asyncio.sleep(every)
        figures = await _figures(layout, http)
        _say_when(f"{figures}   |   {traffic.figures()}" if traffic else figures)


async def _figures(layout: ClusterLayout, http: ClusterHttp) -> str:
    messages = waiting = in_flight = 0
    silent = []
    for nsqd in layout.nsqds:
        try:
            stats = await NsqdApi(http, nsqd.address("http")).stats(include_clients=False)
        except NodeError:
            silent.append(nsqd.name)
            continue
        for topic in stats.topics:
            messages += topic.message_count
            waiting += topic.depth + sum(channel.depth for channel in topic.channels)
            in_flight += sum(channel.in_flight_count for channel in topic.channels)
    figures = f"{messages:,} messages, {waiting:,} waiting, {in_flight:,} in flight"
    return f"{figures}   ({' and '.join(silent)} did not answer)" if silent else figures


def _say(text: str) -> None:
    tell(text, sys.stdout)


def _say_when(text: str) -> None:
    _say(f"{datetime.now().astimezone():%H:%M:%S}   {text}")


def _shorten(path: Path) -> str:
    """Write the path as a person would type it from here."""
    short = os.path.relpath(path)
    return str(path) if short.startswith("..") else f"./{short}"


def _log_clients_to(path: Path) -> None:
    """Log reconnects of the sample traffic to a file, because they do not belong between the figures."""
    handler = logging.FileHandler(path, mode="w", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger("nsqclient").addHandler(handler)
    logging.getLogger("nsqclient").propagate = False
