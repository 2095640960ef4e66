"""``python -m bench.fleet_checks``: what the model of a fleet predicts beside what is measured.

Small fleets are measured first and give the constants; with these the model predicts 50 real nsqd, and stubs
of 1,000, which are measured next.
"""

import argparse
import asyncio
import http.client
import json
import random
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.cpu import process_seconds
from bench.fleet import SimulatedNsqd, announcement
from bench.fleet_model import Constants, Fleet, costs, lookup_us
from bench.stub_cluster import Size, StubCluster
from nsqclient import Config, Consumer
from nsqclient.wire.commands import NOP, identify, rdy, sub
from nsqclient.wire.frames import HEARTBEAT

SETTLE_S: Final = 6.0
CHANNELS: Final = 2
# What else the machine does only adds to the processor time of a batch, so the least of several counts.
BATCHES: Final = 8
LOOKUPS: Final = 60


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    predicted: float
    measured: float

    @property
    def off(self) -> float:
        """How far the prediction is from what was measured, as a share of it."""
        return self.predicted / self.measured - 1 if self.measured else 0.0

    def line(self) -> str:
        return f"| {self.what} | {_short(self.predicted)} | {_short(self.measured)} | {self.off:+.0%} |"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


HEADER: Final = "| | predicted | measured | off |\n|---|--:|--:|--:|"


def _free_ports() -> Iterator[int]:
    """Below those that connections come from: a hundred daemons take a while to listen on theirs."""
    first = random.randrange(12_000, 28_000)
    for port in range(first, 32_000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                yield port


_ports = _free_ports()


class Process:
    """A daemon on free ports of loopback."""

    def __init__(self, program: str, *flags: str, listeners: tuple[str, ...] = ("tcp", "http")) -> None:
        self.ports = {kind: next(_ports) for kind in listeners}
        listen = [f"--{kind}-address=127.0.0.1:{port}" for kind, port in self.ports.items()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", program, "--log-level=warn", *listen, *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def address(self, kind: str) -> str:
        return f"127.0.0.1:{self.ports[kind]}"

    def wait(self) -> None:
        deadline = time.monotonic() + 120
        while True:
            try:
                if ask(self.address("http"), "/ping")[0] == 200:
                    return
            except OSError:
                pass
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise SystemExit("a daemon does not start")
            time.sleep(0.05)

    def cpu_s(self) -> float:
        return process_seconds(self._process.pid)

    def memory_mb(self) -> float:
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) * 1024 / 1e6

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def ask(address: str, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def topic_name(number: int) -> str:
    return f"topic-{number:04}"


def wait_until(condition: Any, what: str, seconds: float = 120) -> float:
    """Seconds it took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise SystemExit(f"waited in vain until {what}")
        time.sleep(0.05)
    return time.monotonic() - began


# --- real processes


def real_fleet(nsqds: int, topics: int) -> dict[str, float]:
    """nsqlookupd, so many nsqd with the same topics, nsqadmin, and a consumer of one channel of one topic."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder, ExitStack() as stack:
        lookupd = Process("nsqlookupd", "--broadcast-address=127.0.0.1")
        stack.callback(lookupd.stop)
        lookupd.wait()
        nodes = []
        for number in range(nsqds):
            data = Path(folder, str(number))
            data.mkdir()
            flags = (
                "--broadcast-address=127.0.0.1",
                f"--lookupd-tcp-address={lookupd.address('tcp')}",
                f"--data-path={data}",
                f"--node-id={number}",
            )
            nodes.append(Process("nsqd", *flags))
            stack.callback(nodes[-1].stop)
        for node in nodes:
            node.wait()
            for number in range(topics):
                ask(node.address("http"), f"/topic/create?topic={topic_name(number)}", "POST")
                for channel in range(CHANNELS):
                    where = f"topic={topic_name(number)}&channel=channel-{channel}"
                    ask(node.address("http"), f"/channel/create?{where}", "POST")
        looked = f"/lookup?topic={topic_name(0)}"

        def registered() -> bool:
            status, body = ask(lookupd.address("http"), looked)
            return status == 200 and len(json.loads(body)["producers"]) == nsqds

        wait_until(registered, "all nsqd are registered")
        admin = Process("nsqadmin", f"--lookupd-http-address={lookupd.address('http')}", listeners=("http",))
        stack.callback(admin.stop)
        admin.wait()
        command = [
            sys.executable,
            "-m",
            "bench.fleet_checks",
            "consumer",
            lookupd.address("http"),
            str(nsqds),
        ]
        consumer = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(consumer.kill)
        assert consumer.stdout is not None
        told = json.loads(consumer.stdout.readline())
        command.append("traced")
        other = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(other.kill)
        assert other.stdout is not None
        told["memory_mb"] = json.loads(other.stdout.readline())["memory_mb"]
        time.sleep(SETTLE_S / 2)
        before = lookupd.cpu_s(), sum(node.cpu_s() for node in nodes)
        began = time.monotonic()
        time.sleep(SETTLE_S)
        took = time.monotonic() - began
        return {
            "nsqlookupd, MB": lookupd.memory_mb(),
            "an nsqd, MB": sum(node.memory_mb() for node in nodes) / nsqds,
            "an idle nsqd, ms of CPU a second": (sum(n.cpu_s() for n in nodes) - before[1])
            / nsqds
            / took
            * 1e3,
            "nsqadmin, MB": admin.memory_mb(),
            "an answer to /lookup, kB": len(ask(lookupd.address("http"), looked)[1]) / 1e3,
            "an answer to /nodes, kB": len(ask(lookupd.address("http"), "/nodes")[1]) / 1e3,
            "a consumer's connections": told["connections"],
            "a consumer connects, ms of CPU": told["cpu_s"] * 1e3,
            "a consumer's connections, MB": told["memory_mb"],
        }


async def consume(lookupd: str, nsqds: int, *, traced: bool) -> None:
    """Read one channel, and say what connecting to all nsqd has cost.

    Less than a megabyte is not to be seen in the memory of a process: traced it is counted, which takes time.
    """

    def memory_mb() -> float:
        return tracemalloc.get_traced_memory()[0] / 1e6 if traced else 0.0

    if traced:
        tracemalloc.start()
    consumer = Consumer(
        topic_name(0),
        "channel-0",
        lambda _: None,
        lookupd_addresses=[lookupd],
        config=Config(max_in_flight=2500),
    )
    before = time.process_time(), memory_mb()
    async with consumer:
        while consumer.stats.connections < nsqds:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.05)
        told = {
            "connections": consumer.stats.connections,
            "cpu_s": time.process_time() - before[0],
            "memory_mb": memory_mb() - before[1],
        }
        print(json.dumps(told), flush=True)
        await asyncio.sleep(600)


def one_nsqd(topics: int = 500, connections: int = 500, seconds: float = 12.0) -> dict[str, float]:
    """What a topic, a connection and a heartbeat cost an nsqd."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder, ExitStack() as stack:
        nsqd = Process("nsqd", f"--data-path={folder}")
        stack.callback(nsqd.stop)
        nsqd.wait()
        time.sleep(1)
        empty = nsqd.memory_mb()
        for number in range(topics):
            ask(nsqd.address("http"), f"/topic/create?topic={topic_name(number)}", "POST")
        time.sleep(1)
        with_topics = nsqd.memory_mb()
        greeting = b"  V2" + identify({"client_id": "x", "heartbeat_interval": 4000})
        open_ = []
        for number in range(connections):
            line = stack.enter_context(socket.create_connection(("127.0.0.1", nsqd.ports["tcp"])))
            line.sendall(greeting + sub(topic_name(number % topics), "channel-0#ephemeral") + rdy(1))
            open_.append(line)
        time.sleep(1)
        with_connections, before = nsqd.memory_mb(), nsqd.cpu_s()
        beats = 0
        for line in open_:
            line.setblocking(False)
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            time.sleep(0.2)
            for line in open_:
                with suppress(BlockingIOError):
                    beats += line.recv(4096).count(HEARTBEAT)
                    line.sendall(NOP)
        return {
            "topic_kb": (with_topics - empty) * 1e3 / topics,
            "connection_kb": (with_connections - with_topics) * 1e3 / connections,
            "heartbeat_us": (nsqd.cpu_s() - before) / max(1, beats) * 1e6,
        }


# --- stubs


async def lookups_us(lookupd: Process, topics: int) -> float:
    began = lookupd.cpu_s()
    for number in range(LOOKUPS):
        path = f"/lookup?topic=topic-{number % topics:04}"
        await asyncio.to_thread(ask, lookupd.address("http"), path)
    return (lookupd.cpu_s() - began) / LOOKUPS * 1e6


async def pings_us(lookupd: Process, nodes: list[SimulatedNsqd]) -> float:
    began = lookupd.cpu_s()
    for node in nodes:
        node.ping()
    await asyncio.sleep(0.4)
    return (lookupd.cpu_s() - began) / len(nodes) * 1e6


async def stub_lookupd(nsqds: int, topics: int) -> dict[str, float]:
    """One nsqlookupd and so many nsqd that only register and ping."""
    lookupd = Process("nsqlookupd")
    nodes: list[SimulatedNsqd] = []
    try:
        await asyncio.to_thread(lookupd.wait)
        empty = lookupd.memory_mb()
        batches, sizes = announcement(topics, CHANNELS)
        began = lookupd.cpu_s()
        loop = asyncio.get_running_loop()
        nodes = [SimulatedNsqd(number, batches, sizes) for number in range(nsqds)]
        for node in nodes:
            await loop.create_connection(lambda node=node: node, "127.0.0.1", lookupd.ports["tcp"])  # type: ignore[misc]
        await asyncio.gather(*(node.announced for node in nodes))
        registered = lookupd.cpu_s() - began
        pinged = [await pings_us(lookupd, nodes) for _ in range(BATCHES)]
        looked = [await lookups_us(lookupd, topics) for _ in range(BATCHES)]
        _, body = await asyncio.to_thread(ask, lookupd.address("http"), "/lookup?topic=topic-0000")
        _, listed = await asyncio.to_thread(ask, lookupd.address("http"), "/nodes")
        return {
            "empty": empty,
            "nsqlookupd, MB": lookupd.memory_mb(),
            "all register, s of CPU": registered,
            "a PING, us of CPU": min(pinged),
            "a /lookup, us of CPU": min(looked),
            "an answer to /lookup, kB": len(body) / 1e3,
            "an answer to /nodes, kB": len(listed) / 1e3,
        }
    finally:
        for node in nodes:
            node.close()
        await asyncio.to_thread(lookupd.stop)


async def stub_admin(nsqds: int, topics: int, seconds: float) -> dict[str, float]:
    """One nsqadmin and so many nsqd and one nsqlookupd that only answer HTTP."""
    cluster = StubCluster(Size(nsqds, topics, CHANNELS, nsqds), 1)
    await cluster.start()
    admin = Process(
        "nsqadmin", f"--lookupd-http-address=127.0.0.1:{cluster.lookupd_ports[0]}", listeners=("http",)
    )
    try:
        await asyncio.to_thread(admin.wait)
        empty = admin.memory_mb()

        def polls() -> int:
            return sum(len(node.asked) for node in cluster.nodes)

        async def watch(until: float, enough: int) -> None:
            """Look at it as somebody does, so that it asks as often as it may."""
            while time.monotonic() < until and polls() < enough:
                await asyncio.to_thread(ask, admin.address("http"), "/api/topics")
                await asyncio.sleep(2)

        await watch(time.monotonic() + 60, 2 * nsqds)
        before, asked, began = admin.cpu_s(), polls(), time.monotonic()
        await watch(began + seconds, 1 << 30)
        spent, took, asked = admin.cpu_s() - before, time.monotonic() - began, polls() - asked
        return {
            "empty": empty,
            "nsqadmin, MB": admin.memory_mb(),
            "nsqadmin, ms of CPU for each nsqd it asks": spent / max(1, asked) * 1e3,
            "nsqadmin, processors": spent / took,
        }
    finally:
        await asyncio.to_thread(admin.stop)
        await cluster.stop()


# --- constants and predictions


def from_lookupd(
    c: Constants,
    small: dict[str, float],
    wide: dict[str, float],
    more: dict[str, float],
) -> Constants:
    """*small* and *wide* are 100 nsqd with 50 and 200 topics, *more* 600 with 10."""
    kinds = 1 + CHANNELS
    per_registration = (wide["nsqlookupd, MB"] - small["nsqlookupd, MB"]) * 1e6 / (100 * 150 * kinds)
    node_bytes = small["an answer to /lookup, kB"] * 1e3 / 100
    per_node_us = (more["a /lookup, us of CPU"] - small["a /lookup, us of CPU"]) / 500
    grown = (small["nsqlookupd, MB"] - small["empty"]) * 1e6 / 100
    return replace(
        c,
        lookupd_base_mb=small["empty"],
        lookupd_registration_bytes=per_registration,
        lookupd_node_kb=max(0.0, grown - per_registration * 50 * kinds) / 1e3,
        register_us=wide["all register, s of CPU"] * 1e6 / (100 * 200 * kinds),
        ping_us=small["a PING, us of CPU"],
        lookup_node_us=max(0.0, per_node_us),
        lookup_us=max(0.0, small["a /lookup, us of CPU"] - 100 * max(0.0, per_node_us)),
        lookup_node_bytes=node_bytes,
        nodes_topic_bytes=(wide["an answer to /nodes, kB"] - small["an answer to /nodes, kB"])
        * 1e3
        / (100 * 150),
    )


def from_admin(c: Constants, small: dict[str, float], wide: dict[str, float]) -> Constants:
    """100 nsqd with 10 and with 50 topics."""
    cpu = "nsqadmin, ms of CPU for each nsqd it asks"
    more = 40 * CHANNELS
    per_channel_us = (wide[cpu] - small[cpu]) * 1e3 / more
    per_channel = (wide["nsqadmin, MB"] - small["nsqadmin, MB"]) * 1e6 / (100 * more)
    grown = (small["nsqadmin, MB"] - small["empty"]) * 1e6 / 100
    return replace(
        c,
        admin_base_mb=small["empty"],
        poll_channel_us=max(0.0, per_channel_us),
        poll_us=small[cpu] * 1e3 - 10 * CHANNELS * max(0.0, per_channel_us),
        admin_channel_bytes=max(0.0, per_channel),
        admin_node_kb=max(0.0, grown - 10 * CHANNELS * max(0.0, per_channel)) / 1e3,
    )


def from_real(
    c: Constants, few: dict[str, float], more: dict[str, float], sizes: tuple[int, int]
) -> Constants:
    """So many nsqd with 10 topics each, twice."""
    between = sizes[1] - sizes[0]

    def slope(what: str) -> float:
        return max(0.0, (more[what] - few[what]) / between)

    return replace(
        c,
        nsqd_base_mb=few["an nsqd, MB"] - 10 * c.nsqd_topic_kb / 1e3,
        nsqd_idle_us_per_s=more["an idle nsqd, ms of CPU a second"] * 1e3,
        consumer_connect_us=slope("a consumer connects, ms of CPU") * 1e3,
        consumer_connection_kb=slope("a consumer's connections, MB") * 1e3,
    )


def real_rows(
    c: Constants, nsqds: int, few: dict[str, float], more: dict[str, float], sizes: tuple[int, int]
) -> list[Row]:
    fleet = Fleet(nsqds, topics=10, channels=CHANNELS, consumers=0, rate=0, lookupds=1)
    found, said = real_fleet(nsqds, 10), costs(fleet, c)

    def line(what: str) -> float:
        """On a straight line through the two small fleets."""
        return more[what] + (more[what] - few[what]) / (sizes[1] - sizes[0]) * (nsqds - sizes[1])

    predicted = {
        "nsqlookupd, MB": line("nsqlookupd, MB"),
        "an nsqd, MB": said.nsqd_mb,
        "an idle nsqd, ms of CPU a second": said.nsqd_cores * 1e3,
        "nsqadmin, MB": line("nsqadmin, MB"),
        "an answer to /lookup, kB": line("an answer to /lookup, kB"),
        "an answer to /nodes, kB": line("an answer to /nodes, kB"),
        "a consumer's connections": said.consumer_connections,
        "a consumer connects, ms of CPU": line("a consumer connects, ms of CPU"),
        "a consumer's connections, MB": line("a consumer's connections, MB"),
    }
    return [Row(what, value, found[what]) for what, value in predicted.items()]


async def lookupd_rows(c: Constants, nsqds: int) -> list[Row]:
    fleet = Fleet(nsqds, topics=200, channels=CHANNELS, lookupds=1)
    found, said = await stub_lookupd(nsqds, 200), costs(fleet, c)
    predicted = {
        "nsqlookupd, MB": said.lookupd_mb,
        "all register, s of CPU": said.registration_s,
        "a PING, us of CPU": c.ping_us,
        "a /lookup, us of CPU": lookup_us(c, nsqds),
        "an answer to /lookup, kB": said.lookup_kb,
        "an answer to /nodes, kB": said.nodes_mb * 1e3,
    }
    return [Row(what, value, found[what]) for what, value in predicted.items()]


async def admin_rows(c: Constants, nsqds: int, seconds: float) -> list[Row]:
    fleet = Fleet(nsqds, topics=20, channels=CHANNELS, lookupds=1)
    found, said = await stub_admin(nsqds, 20, seconds), costs(fleet, c)
    predicted = {
        "nsqadmin, MB": said.admin_mb,
        "nsqadmin, ms of CPU for each nsqd it asks": (c.poll_us + c.poll_channel_us * 20 * CHANNELS) / 1e3,
    }
    return [Row(what, value, found[what]) for what, value in predicted.items()]


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
        uvloop.run(consume(args.rest[0], int(args.rest[1]), traced="traced" in args.rest))
        return 0
    if args.what == "nsqd":
        print(json.dumps(one_nsqd()))
        return 0
    if args.what == "real":
        sizes = 5, 15
        few, more = (real_fleet(size, 10) for size in sizes)
        constants = from_real(Constants(), few, more, sizes)
        rows = real_rows(constants, args.nsqds or 50, few, more, sizes)
    elif args.what == "lookupd":
        looked = [asyncio.run(stub_lookupd(*size)) for size in ((100, 50), (100, 200), (600, 10))]
        constants = from_lookupd(Constants(), *looked)
        rows = asyncio.run(lookupd_rows(constants, args.nsqds or 1000))
    else:
        asked = [asyncio.run(stub_admin(100, topics, args.seconds)) for topics in (10, 50)]
        constants = from_admin(Constants(), *asked)
        rows = asyncio.run(admin_rows(constants, args.nsqds or 1000, args.seconds))
    print(HEADER)
    for row in rows:
        print(row.line())
    found = {one.name: getattr(constants, one.name) for one in fields(Constants)}
    default = Constants()
    print(json.dumps({k: round(v, 3) for k, v in found.items() if v != getattr(default, k)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
