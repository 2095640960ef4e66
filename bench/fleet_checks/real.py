"""Measures real processes: several nsqd with the same topics, nsqlookupd, nsqadmin, and consumers."""

import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.fleet_checks.process import Process, ask, topic_name, wait_until
from bench.fleet_checks.rows import Row
from bench.fleet_model import Constants, Fleet, costs

SETTLE_S: Final = 6.0
CHANNELS: Final = 2
TOPICS: Final = 10
SIZES: Final = (5, 15)


def measure_real(nsqds: int) -> dict[str, float]:
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
            _make_topics(node)
        looked = f"/lookup?topic={topic_name(TOPICS - 1)}"

        def registered() -> bool:
            status, body = ask(lookupd.address("http"), looked)
            return status == 200 and len(json.loads(body)["producers"]) == nsqds

        wait_until(registered, "all nsqd are registered")
        admin = Process("nsqadmin", f"--lookupd-http-address={lookupd.address('http')}", listeners=("http",))
        stack.callback(admin.stop)
        admin.wait()
        # Measured without consumers, because their connections would count.
        time.sleep(SETTLE_S / 2)
        before = sum(node.cpu_s() for node in nodes)
        began = time.monotonic()
        time.sleep(SETTLE_S)
        took = time.monotonic() - began
        idle_s = sum(node.cpu_s() for node in nodes) - before
        found = {
            "nsqlookupd, MB": lookupd.memory_mb(),
            "an nsqd, MB": sum(node.memory_mb() for node in nodes) / nsqds,
            "an idle nsqd, ms of CPU a second": idle_s / nsqds / took * 1e3,
            "nsqadmin, MB": admin.memory_mb(),
            "an answer to /lookup, kB": len(ask(lookupd.address("http"), looked)[1]) / 1e3,
            "an answer to /nodes, kB": len(ask(lookupd.address("http"), "/nodes")[1]) / 1e3,
        }
        arguments = ["consumer", lookupd.address("http"), str(nsqds), str(TOPICS)]
        command = [sys.executable, "-m", "bench.fleet_checks", *arguments]
        consumer = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(consumer.kill)
        assert consumer.stdout is not None
        told = json.loads(consumer.stdout.readline())
        return found | {
            "a consumer's connections": told["connections"],
            "a consumer connects, ms of CPU": told["cpu_s"] * 1e3,
            "a consumer's connections, MB": told["memory_mb"],
        }


def _make_topics(node: Process) -> None:
    for number in range(TOPICS):
        ask(node.address("http"), f"/topic/create?topic={topic_name(number)}", "POST")
        for channel in range(CHANNELS):
            where = f"topic={topic_name(number)}&channel=channel-{channel}"
            ask(node.address("http"), f"/channel/create?{where}", "POST")


def from_real(c: Constants, few: dict[str, float], more: dict[str, float]) -> Constants:
    """Return constants from two small fleets: the cost of each nsqd, and the fixed cost."""
    between = SIZES[1] - SIZES[0]

    def grows(what: str) -> tuple[float, float]:
        each = max(0.0, (more[what] - few[what]) / between)
        return each, max(0.0, few[what] - each * SIZES[0])

    connect_ms, start_ms = grows("a consumer connects, ms of CPU")
    connection_mb, consumer_mb = grows("a consumer's connections, MB")
    return replace(
        c,
        nsqd_base_mb=few["an nsqd, MB"] - TOPICS * c.nsqd_topic_kb / 1e3,
        nsqd_idle_us_per_s=more["an idle nsqd, ms of CPU a second"] * 1e3,
        consumer_connect_us=connect_ms * 1e3,
        consumer_start_us=start_ms * 1e3,
        consumer_connection_kb=connection_mb * 1e3,
        consumer_base_kb=consumer_mb * 1e3,
    )


def check_real(nsqds: int) -> tuple[Constants, list[Row]]:
    """Return constants from small fleets, and their predictions for *nsqds* beside the measurements."""
    few, more = (measure_real(size) for size in SIZES)
    c = from_real(Constants(), few, more)
    fleet = Fleet(nsqds, topics=TOPICS, channels=CHANNELS, consumers=0, rate=0, lookupds=1)
    found, said = measure_real(nsqds), costs(fleet, c)

    def line(what: str) -> float:
        """Return the value on a straight line through the two small fleets."""
        return more[what] + (more[what] - few[what]) / (SIZES[1] - SIZES[0]) * (nsqds - SIZES[1])

    predicted = {
        "nsqlookupd, MB": line("nsqlookupd, MB"),
        "an nsqd, MB": said.nsqd_mb,
        "an idle nsqd, ms of CPU a second": said.nsqd_cores * 1e3,
        "nsqadmin, MB": line("nsqadmin, MB"),
        "an answer to /lookup, kB": line("an answer to /lookup, kB"),
        "an answer to /nodes, kB": line("an answer to /nodes, kB"),
        "a consumer's connections": said.consumer_connections,
        "a consumer connects, ms of CPU": said.consumer_start_s * 1e3,
        "a consumer's connections, MB": said.consumer_mb,
    }
    return c, [Row(what, value, found[what]) for what, value in predicted.items()]
