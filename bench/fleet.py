"""``python -m bench.fleet``: one nsqlookupd with a fleet of simulated nsqds, measured.

Every simulated nsqd registers the same topics and channels, as the brokers of one cluster do, sends PINGs and
reconnects when nsqlookupd is restarted. Meanwhile topics are looked up at a steady rate.
"""

import argparse
import asyncio
import gc
import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import uvloop

from bench.fleet_server import LookupdServer
from nsqclient.wire.frames import OK
from nsqclient.wire.lookup import MAGIC_V1, PING, encode_identify, encode_registrations, encode_reply

PIPELINE: Final = 128  # commands under way, as with nsqd
PING_S: Final = 15.0
_OK_REPLY: Final = encode_reply(OK)


class SimulatedNsqd(asyncio.Protocol):
    """Identifies itself, registers everything it has, and sends PINGs while the connection lasts."""

    def __init__(self, number: int, batches: Sequence[bytes], sizes: Sequence[int]) -> None:
        address = f"nsqd-{number}.nsqd-headless.messaging.svc.cluster.local"
        self._identify = encode_identify(
            {
                "broadcast_address": address,
                "hostname": f"nsqd-{number}",
                "tcp_port": 4150,
                "http_port": 4151,
                "version": "1.3.0",
            }
        )
        self._batches = batches
        self._sizes = sizes
        self._next = 0
        self._owed = 0
        self._transport: asyncio.Transport
        self.announced = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._transport.write(MAGIC_V1 + self._identify)

    def data_received(self, data: bytes) -> None:
        if self._owed:
            self._owed -= len(data)
            if self._owed:
                return
        # On loopback the answer to IDENTIFY comes in one piece.
        if self._next < len(self._batches):
            self._owed = self._sizes[self._next] * len(_OK_REPLY)
            self._transport.write(self._batches[self._next])
            self._next += 1
        elif not self.announced.done():
            self.announced.set_result(None)

    def ping(self) -> None:
        self._owed = len(_OK_REPLY)
        self._transport.write(PING)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.announced.done():
            self.announced.set_exception(exc or ConnectionError("closed"))

    def close(self) -> None:
        self._transport.abort()


@dataclass
class Figures:
    """The measurements of one size of fleet, in seconds and MiB."""

    nsqds: int
    registered_s: float = 0.0
    registered_again_s: float = 0.0
    cores: float = 0.0
    lookups: list[float] = field(default_factory=list)
    topics_s: float = 0.0
    nodes_s: float = 0.0
    memory_mib: float = 0.0

    def percentile(self, share: float) -> float:
        ordered = sorted(self.lookups)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    def row(self) -> str:
        return (
            f"| {self.nsqds} | {self.registered_s:.1f} | {self.registered_again_s:.1f} | {self.cores:.2f}"
            f" | {self.percentile(0.5) * 1e3:.1f} | {self.percentile(0.99) * 1e3:.1f}"
            f" | {self.topics_s * 1e3:.0f} | {self.nodes_s * 1e3:.0f} | {self.memory_mib:.0f} |"
        )


HEADER: Final = (
    "| nsqds | registered (s) | again after a restart (s) | cores | lookup p50 (ms) | p99 (ms)"
    " | /topics (ms) | /nodes (ms) | memory (MiB) |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def announcement(topics: int, channels: int) -> tuple[list[bytes], list[int]]:
    """Return the registrations of one nsqd in batches, and the number of commands in each."""
    names = [f"channel-{number}" for number in range(channels)]
    commands = encode_registrations((f"topic-{number:04}", names) for number in range(topics))
    cut = [commands[start : start + PIPELINE] for start in range(0, len(commands), PIPELINE)]
    return [b"".join(batch) for batch in cut], [len(batch) for batch in cut]


async def announce(server: LookupdServer, fleet: int, args: argparse.Namespace) -> list[SimulatedNsqd]:
    """Connect the whole fleet at once, and return when every nsqd is registered."""
    batches, sizes = announcement(args.topics, args.channels)
    loop = asyncio.get_running_loop()
    nsqds = [SimulatedNsqd(number, batches, sizes) for number in range(fleet)]
    for nsqd in nsqds:
        await loop.create_connection(lambda nsqd=nsqd: nsqd, *server.tcp)  # type: ignore[misc]
    await asyncio.gather(*(nsqd.announced for nsqd in nsqds))
    return nsqds


async def keep_alive(nsqds: list[SimulatedNsqd]) -> None:
    """Send a PING from each nsqd every 15 seconds, one after the other."""
    while True:
        for nsqd in nsqds:
            nsqd.ping()
            await asyncio.sleep(PING_S / len(nsqds))


async def look_up(server: LookupdServer, figures: Figures, args: argparse.Namespace) -> None:
    """Look up one topic after another at a steady rate; each request is timed from its due moment."""
    # Collecting garbage of the simulated fleet takes milliseconds, which must not count as the server's.
    gc.collect()
    gc.freeze()
    due = time.perf_counter()
    end = due + args.seconds
    number = 0
    while due < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        body = await server.get(f"/lookup?topic=topic-{number % args.topics:04}")
        figures.lookups.append(time.perf_counter() - due)
        if number == 0 and len(json.loads(body)["producers"]) != figures.nsqds:
            raise SystemExit("not every nsqd is a producer")
        number += 1
        due += 1 / args.rate


async def timed(server: LookupdServer, path: str) -> float:
    began = time.perf_counter()
    await server.get(path)
    return time.perf_counter() - began


async def measure(fleet: int, args: argparse.Namespace) -> Figures:
    figures = Figures(fleet)
    with LookupdServer(shlex.split(args.cmd)) as server:
        for restarted in (False, True):
            server.start()
            began = time.perf_counter()
            nsqds = await announce(server, fleet, args)
            took = time.perf_counter() - began
            if restarted:
                figures.registered_again_s = took
            else:
                figures.registered_s = took
                server.stop()
                for nsqd in nsqds:
                    nsqd.close()
        pings = asyncio.create_task(keep_alive(nsqds))
        cpu, began = server.cpu_seconds(), time.perf_counter()
        await look_up(server, figures, args)
        figures.cores = (server.cpu_seconds() - cpu) / (time.perf_counter() - began)
        pings.cancel()
        figures.topics_s = await timed(server, "/topics")
        figures.nodes_s = await timed(server, "/nodes")
        figures.memory_mib = server.peak_memory_mib()
        for nsqd in nsqds:
            nsqd.close()
    return figures


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.fleet",
        description="Measure an nsqlookupd with many nsqds, topics and channels.",
    )
    parser.add_argument("--nsqds", default="10,100,1000", help="sizes of the fleet, default %(default)s")
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--channels", type=int, default=2, help="of each topic")
    parser.add_argument("--rate", type=float, default=50.0, help="lookups per second")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long topics are looked up")
    parser.add_argument(
        "--cmd",
        default=f"{sys.executable} -m nsqlookupd --log-level=warn",
        help="how to start nsqlookupd; the addresses are added",
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    print(HEADER)
    for fleet in map(int, args.nsqds.split(",")):
        figures: Any = uvloop.run(measure(fleet, args))
        print(figures.row(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
