"""A long queue: what an nsqd with millions of waiting messages needs, and how long it takes to start on them.

    python -m bench.backlog --messages 10000000

Publishes to one topic with one channel and no consumer, then restarts the node after a clean stop and after
kill -9. A start ends when /ping answers; then the channel must be owed every message.
"""

import argparse
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.load import OK_FRAME, LoadError, bodies, connect, encode_mpub
from bench.server import OURS, Server, free_address, wait_for_ping

BATCH = 200
# Number of batches that are sent before the first answer is read.
WINDOW = 20


def publish(sock: socket.socket, count: int, size: int) -> None:
    batch = encode_mpub("backlog", bodies(size, BATCH))
    waiting = 0
    for _ in range(count // BATCH):
        sock.sendall(batch)
        waiting += 1
        if waiting == WINDOW:
            _answers(sock, waiting)
            waiting = 0
    _answers(sock, waiting)


def _answers(sock: socket.socket, count: int) -> None:
    expected = count * OK_FRAME
    got = b""
    while len(got) < len(expected):
        piece = sock.recv(len(expected) - len(got))
        if not piece:
            raise LoadError("the server closed the connection")
        got += piece
    if got != expected:
        raise LoadError(f"not every publish was answered with OK: {got[:100]!r}")


class Node:
    """One nsqd that is started several times on the same data."""

    def __init__(self, data: Path, *flags: str) -> None:
        self.tcp, self.http = free_address(), free_address()
        command = OURS.format(
            tcp=f"{self.tcp[0]}:{self.tcp[1]}", http=f"{self.http[0]}:{self.http[1]}", data=data, mem=10_000
        )
        self._command = [*command.split(), *flags]
        self._log = data / "server.log"

    def start(self) -> float:
        """Start it and return how many seconds that took."""
        began = time.monotonic()
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)
        self.server = Server("nsqd", self.tcp, self.http, self.process.pid)
        wait_for_ping(self.process, self.http, self._log, seconds=600)
        return time.monotonic() - began

    def end(self, number: signal.Signals) -> float:
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(600)
        return time.monotonic() - began

    def depth(self) -> int:
        (channel,) = self.server.topic_stats("backlog")["channels"]
        return int(channel["depth"])


def measure(count: int, size: int, data: Path) -> dict[str, float | int]:
    node = Node(data)
    found: dict[str, float | int] = {"messages": count, "bytes": size, "first_start_s": node.start()}
    node.server.ask("POST", "/topic/create?topic=backlog")
    node.server.ask("POST", "/channel/create?topic=backlog&channel=ch")
    found["empty_mib"] = node.server.memory_mib()
    sock = connect(node.tcp)
    began = time.monotonic()
    publish(sock, count, size)
    found["publish_s"] = time.monotonic() - began
    sock.close()
    found["full_mib"] = node.server.memory_mib()
    found["peak_mib"] = node.server.peak_memory_mib()
    found["clean_stop_s"] = node.end(signal.SIGTERM)
    found["on_disk_mib"] = sum(path.stat().st_size for path in data.rglob("*.log")) / (1 << 20)
    for name, number in (("clean", signal.SIGKILL), ("kill", signal.SIGTERM)):
        found[f"start_after_{name}_s"] = node.start()
        found[f"owed_after_{name}"] = node.depth()
        found[f"mib_after_{name}"] = node.server.memory_mib()
        # These messages are behind the last checkpoint and in an open segment when the node is killed.
        sock = connect(node.tcp)
        publish(sock, 200 * BATCH, size)
        sock.close()
        node.end(number)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.backlog", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--size", type=int, default=200, help="bytes of a body")
    parser.add_argument("--data-root", help="folder for the data path")
    given = parser.parse_args(argv)
    data = Path(tempfile.mkdtemp(prefix="nsq-backlog-", dir=given.data_root))
    try:
        print(json.dumps(measure(given.messages, given.size, data), indent=1))
    finally:
        shutil.rmtree(data, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
