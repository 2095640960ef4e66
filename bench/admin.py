"""``python -m bench.admin``: nsqadmin in front of a large cluster of stubs, with viewers on its pages.

It prints how long each page takes, what processor time and memory nsqadmin uses, and whether a healthy
cluster looks healthy. With ``--peer-cmd`` it also times the routes of the JSON API on another nsqadmin.
"""

import argparse
import http.client
import json
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from bench.cpu import process_seconds
from bench.ports import free_port
from bench.stub_cluster import channel_name, size_arguments, topic_name

OURS: Final = f"{sys.executable} -m nsqadmin --http-address={{http}} {{lookupds}}"
# An open page asks at this interval.
REFRESH_S: Final = 2.0
WARM_UP_S: Final = 12.0


def pages(node: str) -> dict[str, str]:
    topic, channel = topic_name(1), channel_name(1)
    return {
        "topics": "/",
        "topics by depth, page 3": "/topics?sort=depth&dir=desc&page=3",
        "topics, filtered": "/topics?q=topic.01",
        "topic": f"/topics/{topic}",
        "channel": f"/topics/{topic}/{channel}",
        "nodes": "/nodes",
        "node": f"/nodes/{node}",
        "lookup": "/lookup",
        "counter": "/counter",
    }


def routes(node: str) -> dict[str, str]:
    topic, channel = topic_name(1), channel_name(1)
    return {
        "/api/topics": "/api/topics",
        "/api/topics/T": f"/api/topics/{topic}",
        "/api/topics/T/C": f"/api/topics/{topic}/{channel}",
        "/api/nodes": "/api/nodes",
        "/api/nodes/N": f"/api/nodes/{node}",
        "/api/counter": "/api/counter",
    }


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def get(address: str, path: str) -> tuple[float, int, bytes]:
    """Send one request on a new connection; return seconds, status and body."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        body = reply.read()
    finally:
        connection.close()
    return time.perf_counter() - began, reply.status, body


class Viewers:
    """Viewers that open page after page and stay on each for the time between two refreshes."""

    def __init__(self, address: str, node: str) -> None:
        self.address = address
        self.pages = pages(node)
        self.seconds: dict[str, list[float]] = {name: [] for name in self.pages}
        self.red: list[str] = []
        self.failed: list[str] = []
        self._stop = threading.Event()

    def watch(self, viewers: int, seconds: float) -> None:
        threads = [threading.Thread(target=self._view, args=(number,)) for number in range(viewers)]
        for thread in threads:
            thread.start()
        self._stop.wait(seconds)
        self._stop.set()
        for thread in threads:
            thread.join()

    def _view(self, number: int) -> None:
        names = list(self.pages)
        turn = number * 2
        self._stop.wait(number * REFRESH_S / 4)
        while not self._stop.is_set():
            name = names[turn % len(names)]
            turn += 1
            took, status, body = get(self.address, self.pages[name])
            self.seconds[name].append(took)
            if status != 200:
                self.failed.append(f"{name}: {status}")
            if found := re.findall(rb"badge-trouble|row-trouble|note-warning", body):
                self.red.append(f"{name}: {len(found)}")
            self._stop.wait(max(0.0, REFRESH_S - took))


class Usage:
    """Processor and memory of one process, as Linux counts them."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._cpu = process_seconds(pid)
        self._began = time.monotonic()

    def core(self) -> float:
        return (process_seconds(self.pid) - self._cpu) / (time.monotonic() - self._began)

    def megabytes(self, what: str = "VmHWM") -> float:
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(rf"{what}:\s+(\d+)", text)[0]) / 1024


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def started(stack: ExitStack, template: str, places: dict[str, Any]) -> tuple[str, int]:
    """Start an nsqadmin with the command line *template* and wait until it answers."""
    address = f"127.0.0.1:{free_port()}"
    lookupds = " ".join(f"--lookupd-http-address={one}" for one in places["lookupds"])
    process = stack.enter_context(running(template.format(http=address, lookupds=lookupds).split()))
    for _ in range(200):
        try:
            get(address, "/ping")
        except OSError:
            time.sleep(0.05)
        else:
            return address, process.pid
    raise SystemExit("bench: nsqadmin did not answer")


def compare(admins: dict[str, str], node: str, repeat: int) -> None:
    """Time the routes of the API; the admins take turns."""
    print("\n| route | " + " | ".join(f"{name}, ms" for name in admins) + " | size |")
    print("|---|" + "---|" * (len(admins) + 1))
    for name, path in routes(node).items():
        took: dict[str, list[float]] = {admin: [] for admin in admins}
        size = 0
        for _ in range(repeat):
            for admin, address in admins.items():
                seconds, status, body = get(address, path)
                took[admin].append(seconds)
                size = len(body)
                if status != 200:
                    print(f"{admin} {path}: {status} {body[:200]!r}", file=sys.stderr)
        cells = [f"{statistics.median(values) * 1000:.1f}" for values in took.values()]
        print(f"| {name} | {' | '.join(cells)} | {size / 1024:,.0f} kB |")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.admin", description=__doc__)
    size_arguments(parser)
    parser.add_argument("--cmd", default=OURS, help="how to start nsqadmin, with {http} and {lookupds}")
    parser.add_argument("--peer-cmd", help="another nsqadmin, whose API is timed beside ours")
    parser.add_argument("--viewers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=45)
    parser.add_argument("--repeat", type=int, default=5, help="requests to each route of the API")
    args = parser.parse_args()
    stub = [sys.executable, "-m", "bench.stub_cluster"]
    for name in ("nodes", "topics", "channels", "spread", "lookupds"):
        if getattr(args, name):
            stub += [f"--{name}", str(getattr(args, name))]
    with ExitStack() as stack:
        cluster = stack.enter_context(running(stub))
        assert cluster.stdout is not None
        places = json.loads(cluster.stdout.readline())
        node = places["nsqds"][0]
        address, pid = started(stack, args.cmd, places)
        viewers = Viewers(address, node)
        get(address, "/")
        time.sleep(WARM_UP_S)
        usage = Usage(pid)
        viewers.watch(args.viewers, args.seconds)
        core, highest = usage.core(), usage.megabytes()
        print("| page | loads | median ms | p95 ms | worst ms |\n|---|---|---|---|---|")
        for name, seconds in viewers.seconds.items():
            if seconds:
                cells = [statistics.median(seconds), percentile(seconds, 0.95), max(seconds)]
                shown = " | ".join(f"{cell * 1000:.0f}" for cell in cells)
                print(f"| {name} | {len(seconds)} | {shown} |")
        print(f"\nprocessor: {core:.2f} of a core; memory: {highest:.0f} MB at most,", end=" ")
        print(f"{usage.megabytes('VmRSS'):.0f} MB at the end")
        print(f"red: {viewers.red or 'nothing'}; failed: {viewers.failed or 'nothing'}")
        admins = {"ours": address}
        if args.peer_cmd:
            admins["peer"], _ = started(stack, args.peer_cmd, places)
        compare(admins, node, args.repeat)
    return 0


if __name__ == "__main__":
    sys.exit(main())
