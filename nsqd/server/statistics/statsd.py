"""Pushes metrics to a statsd daemon, with the names and values that the original's dashboards use."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

from nsqclient.wire.address import join_host_port
from nsqclient.wire.durations import MILLISECOND, SECOND
from nsqclient.wire.names import is_ephemeral
from nsqcore.http.pace import Pace
from nsqcore.process.addresses import split_host_port
from nsqcore.process.logs import Log
from nsqd.options import NsqdOptions
from nsqd.server.statistics.stats import StatsFilter, StatsReport

# How long the address may take to be resolved: the last push must not delay a stop.
RESOLVE_S: Final = 1.0
# How many lines are written in one go: some milliseconds.
_LINES_PER_TURN: Final = 1000

COUNTER: Final = "c"
GAUGE: Final = "g"

_TOPIC: Final = (
    ("message_count", COUNTER),
    ("message_bytes", COUNTER),
    ("depth", GAUGE),
    ("backend_depth", GAUGE),
)
_CHANNEL: Final = (
    ("message_count", COUNTER),
    ("depth", GAUGE),
    ("backend_depth", GAUGE),
    ("in_flight_count", GAUGE),
    ("deferred_count", GAUGE),
    ("requeue_count", COUNTER),
    ("timeout_count", COUNTER),
)
# Not in the original: messages that policies removed. A count of 0 is not pushed.
_REMOVED_BY_POLICY: Final = ("dropped_count", "expired_count", "dead_count")
_MEMORY: Final = (
    "heap_objects",
    "heap_idle_bytes",
    "heap_in_use_bytes",
    "heap_released_bytes",
    "gc_pause_usec_100",
    "gc_pause_usec_99",
    "gc_pause_usec_95",
    "next_gc_bytes",
)


def resolve_prefix(template: str, broadcast_address: str, broadcast_http_port: int) -> str:
    """The prefix with the host filled in: ``nsq.%s`` becomes ``nsq.10_0_0_1_4151.``."""
    host = join_host_port(broadcast_address, broadcast_http_port).replace(".", "_").replace(":", "_")
    prefix = template.replace("%s", host)
    return prefix + "." if prefix and not prefix.endswith(".") else prefix


def metrics(
    snapshot: dict[str, Any], *, exclude_ephemeral: bool, now_ns: int
) -> Iterator[tuple[str, int, str]]:
    """Yield (name, value, kind) of every pushed metric, in the original's order; counters as totals."""
    for topic in snapshot["topics"] or ():
        if exclude_ephemeral and is_ephemeral(topic["topic_name"]):
            continue
        name = f"topic.{topic['topic_name']}"
        for key, kind in _TOPIC:
            yield f"{name}.{key}", topic[key], kind
        yield from _latency(name, topic)
        for channel in topic["channels"]:
            if exclude_ephemeral and is_ephemeral(channel["channel_name"]):
                continue
            channel_name = f"{name}.channel.{channel['channel_name']}"
            for key, kind in _CHANNEL:
                yield f"{channel_name}.{key}", channel[key], kind
            for key in _REMOVED_BY_POLICY:
                if channel.get(key):
                    yield f"{channel_name}.{key}", channel[key], COUNTER
            yield f"{channel_name}.clients", channel["client_count"], GAUGE
            oldest_ns = channel["oldest_message_time"]
            age_ms = max(0, now_ns - oldest_ns) // MILLISECOND if oldest_ns else 0
            yield f"{channel_name}.oldest_message_age", age_ms, GAUGE
            yield from _latency(channel_name, channel)
    if "memory" in snapshot:
        for key in _MEMORY:
            yield f"mem.{key}", snapshot["memory"][key], GAUGE
        yield "mem.gc_runs", snapshot["memory"]["gc_total_runs"], COUNTER


def packets(lines: Iterable[bytes], size: int) -> list[bytes]:
    """Join lines to datagrams of at most *size* bytes; a longer line is a datagram by itself."""
    result: list[bytes] = []
    packet = b""
    for line in lines:
        if packet and len(packet) + len(line) > size:
            result.append(packet)
            packet = b""
        packet += line
    return [*result, packet] if packet else result


class Statsd:
    """Pushes once an interval, the datagrams spread over it; counters as differences to the last push."""

    def __init__(self, stats: StatsReport, options: NsqdOptions, log: Log) -> None:
        """*options* have the prefix of `resolve_prefix`."""
        self._stats = stats
        self._options = options
        self._log = log
        self._before: dict[str, int] = {}

    async def begin(self) -> None:
        """Take the present counters as the last push: earlier runs have pushed their counts."""
        await self.lines()

    async def run(self) -> None:
        """Push until cancelled, then push a last time without pauses."""
        try:
            while True:
                interval_s = self._options.statsd_interval / SECOND
                await asyncio.sleep(interval_s)
                await self._push(interval_s - 1)
        finally:
            await self._push(0)
            self._log.info("STATSD: closing")

    async def lines(self) -> list[bytes]:
        """The lines of the next push; the counters then continue from these."""
        options = self._options
        snapshot = await self._stats.snapshot(
            StatsFilter(include_clients=False, include_memory=options.statsd_mem_stats)
        )
        result: list[bytes] = []
        totals: dict[str, int] = {}
        pace = Pace(_LINES_PER_TURN)
        for name, value, kind in metrics(
            snapshot, exclude_ephemeral=options.statsd_exclude_ephemeral, now_ns=time.time_ns()
        ):
            await pace.done()
            shown = value
            if kind == COUNTER:
                totals[name] = value
                before = self._before.get(name, 0)
                # If it is lower, the topic or channel was deleted and created again: it counts from 0.
                shown = value - before if value >= before else value
            result.append(f"{options.statsd_prefix}{name}:{shown:d}|{kind}\n".encode())
        self._before = totals
        return result

    async def _push(self, spread_s: float) -> None:
        address = self._options.statsd_address
        self._log.info("STATSD: pushing stats to %s", address)
        try:
            host, port = split_host_port(address)
            async with asyncio.timeout(RESOLVE_S):
                transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                    asyncio.DatagramProtocol, remote_addr=(host, int(port))
                )
        except (OSError, ValueError) as error:
            why = str(error) or f"no answer from DNS in {RESOLVE_S:.0f} s"
            self._log.error("failed to create UDP socket to statsd(%s) - %s", address, why)
            return
        left: deque[bytes] = deque()
        try:
            left.extend(packets(await self.lines(), self._options.statsd_udp_packet_size))
            pause_s = spread_s / max(1, len(left))
            while left:
                transport.sendto(left.popleft())
                if pause_s:
                    await asyncio.sleep(pause_s)
        finally:
            # After a stop in between: the next push continues the counters behind these lines.
            for datagram in left:
                transport.sendto(datagram)
            transport.close()


def _latency(name: str, item: dict[str, Any]) -> Iterator[tuple[str, int, str]]:
    for entry in item["e2e_processing_latency"]["percentiles"] or ():
        # 0.999 is named 99_9: it must not be rounded to 100, the name of 1.0.
        percent = f"{entry['quantile'] * 100:.10g}".replace(".", "_")
        yield f"{name}.e2e_processing_latency_{percent}", entry["value"], GAUGE
