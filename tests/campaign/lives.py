"""Starts of three real nsqd that replicate to each other and are killed or lose their disks under load.

    python -m tests.campaign.lives --starts 40 --seed 1

Every acknowledged message must be delivered. A data path is removed only when GET /replication says that all
messages of its node are on another one.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nsqclient.wire.message import MessageRecord
from nsqcore.process.output import write_message
from tests.support.processes import Cluster, Daemon
from tests.support.replicated import FAILOVER_S, empty_path, nodes, shown
from tests.support.wire import ERROR, MESSAGE, Wire, fin, pub

TOPIC, CHANNEL = "lives", "ch"
FLAGS: Final = ("--max-bytes-per-file=200000", "--msg-timeout=5s", "--replica-ack-timeout=1s")
_PAUSE_S: Final = 0.002
_QUIET_S: Final = 12.0
_LONGEST_S: Final = 90.0
KILLED, LOST, SUSPENDED, STOPPED = "killed", "disk lost", "suspended", "stopped"
KINDS: Final = (KILLED, KILLED, LOST, LOST, SUSPENDED, STOPPED)


@dataclass
class Outcome:
    """What came of all starts."""

    published: int = 0
    lost: list[bytes] = field(default_factory=list)
    duplicates: int = 0
    starts: Counter[str] = field(default_factory=Counter)
    # From the death of a node to the first delivery of one of its messages elsewhere, in seconds.
    takeovers: list[float] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        times = sorted(self.takeovers)
        seen = f"{times[len(times) // 2]:.2f} s, at most {times[-1]:.2f} s" if times else "none"
        return (
            f"{dict(self.starts)} in {self.seconds:.0f} s: {self.published} acknowledged,"
            f" {len(self.lost)} lost, {self.duplicates} delivered again;"
            f" takeovers: {len(times)}, median {seen}"
        )


class Lives:
    """The nodes, with a publisher, a consumer and their observations for each."""

    def __init__(self, cluster: Cluster, seed: int, *flags: str) -> None:
        self.rng = random.Random(seed)
        self.nodes = nodes(cluster, 3, *FLAGS, *flags)
        self.outcome = Outcome()
        self.acknowledged: set[bytes] = set()
        self.delivered: Counter[bytes] = Counter()
        # When each node died; messages of it are looked for at the others.
        self.died: dict[int, float] = {}
        self.last = time.monotonic()
        self._stopping = threading.Event()
        self._publishing = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    # --- load ---

    def begin(self) -> None:
        for number, node in enumerate(self.nodes):
            node.post(f"/topic/create?topic={TOPIC}")
            node.post(f"/channel/create?topic={TOPIC}&channel={CHANNEL}")
            self._run(self._publish, number, node)
            self._run(self._consume, number, node)
        self._publishing.set()

    def _run(self, work: Callable[[int, Daemon], None], number: int, node: Daemon) -> None:
        def run() -> None:
            while not self._stopping.is_set():
                with suppress(OSError, EOFError, AssertionError):
                    work(number, node)
                time.sleep(0.05)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _publish(self, number: int, node: Daemon) -> None:
        with Wire(("127.0.0.1", node.tcp_port)) as wire:
            while not self._stopping.is_set():
                self._publishing.wait(1)
                if not self._publishing.is_set():
                    continue
                body = b"%d %d %d" % (number, time.time_ns(), self.rng.randrange(1 << 30))
                wire.send(pub(TOPIC, body.ljust(200)))
                kind, answer = wire.frame()
                while answer == b"_heartbeat_":
                    kind, answer = wire.frame()
                if kind != ERROR and answer == b"OK":
                    with self._lock:
                        self.acknowledged.add(body)
                time.sleep(_PAUSE_S)

    def _consume(self, number: int, node: Daemon) -> None:
        with Wire(("127.0.0.1", node.tcp_port)) as wire:
            wire.subscribe(TOPIC, CHANNEL, ready=20)
            idle_until = 0.0
            while not self._stopping.is_set():
                if not wire.has_more(0.2):
                    continue
                kind, data = wire.frame()
                if data == b"_heartbeat_":
                    wire.send(b"NOP\n")
                if kind != MESSAGE:
                    continue
                message = MessageRecord.decode(data)
                self._came(number, message.body.strip())
                wire.send(fin(message))
                # Now and then a backlog builds up.
                if self._publishing.is_set() and time.monotonic() > idle_until + 3:
                    time.sleep(random.random() / 2)
                    idle_until = time.monotonic()

    def _came(self, number: int, body: bytes) -> None:
        with self._lock:
            self.delivered[body] += 1
            self.last = time.monotonic()
            origin = int(body.split()[0])
            if origin != number and origin in self.died:
                self.outcome.takeovers.append(time.monotonic() - self.died.pop(origin))

    # --- faults ---

    def live_once(self) -> None:
        """Let one node end or be suspended, and start it again."""
        time.sleep(self.rng.uniform(0.5, 3))
        number = self.rng.randrange(len(self.nodes))
        node, kind = self.nodes[number], self.rng.choice(KINDS)
        if kind == LOST and not self._is_replicated(node):
            kind = KILLED
        self.outcome.starts[kind] += 1
        if kind == SUSPENDED:
            os.kill(node.pid, signal.SIGSTOP)
            time.sleep(self.rng.uniform(1, 4))
            os.kill(node.pid, signal.SIGCONT)
            return
        if kind == STOPPED:
            node.stop()
        else:
            node.kill()
            self.died[number] = time.monotonic()
        if kind == LOST:
            empty_path(node)
        away = self.rng.uniform(0, 3 * FAILOVER_S)
        time.sleep(away)
        with self._lock:
            if away < FAILOVER_S + 1:
                self.died.pop(number, None)
        node.start()
        with self._lock:
            self.died.pop(number, None)

    def _is_replicated(self, node: Daemon, seconds: float = 20) -> bool:
        """Whether all messages of a node are on another one now; waits for it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = shown(node)
            in_sync = [one for one in found["replicas"] if one["state"] == "caught_up"]
            promoted = [one for one in found["copies"] if one["state"] != "replica"]
            waiting = [one for one in found["copies"] if one["state"] == "replica" and not one["connected"]]
            full = found["fully_replicated"] and all(one["fully_replicated"] for one in promoted)
            if in_sync and full and not waiting:
                return True
            time.sleep(0.1)
        return False

    # --- end ---

    def end(self) -> None:
        """Let everything be delivered, and count."""
        self._publishing.clear()
        began = time.monotonic()
        with self._lock:
            self.last = began
        while time.monotonic() - self.last < _QUIET_S and time.monotonic() - began < _LONGEST_S:
            time.sleep(0.2)
        self._stopping.set()
        for thread in self._threads:
            thread.join(15)
        outcome = self.outcome
        outcome.published = len(self.acknowledged)
        outcome.lost = sorted(self.acknowledged - self.delivered.keys())
        outcome.duplicates = self.delivered.total() - len(self.delivered)
        for node in self.nodes:
            logs = node._log_path.read_text(errors="replace")
            if "Traceback" in logs:
                outcome.tracebacks.append(logs[logs.index("Traceback") :][:3000])


def run(folder: Path, starts: int, seed: int, *flags: str) -> Outcome:
    """Run so many starts; the cluster is killed at the end."""
    cluster = Cluster(folder)
    began = time.monotonic()
    try:
        lives = Lives(cluster, seed, *flags)
        lives.begin()
        for _ in range(starts):
            lives.live_once()
        lives.end()
        lives.outcome.seconds = time.monotonic() - began
        if lives.outcome.lost:
            for node in lives.nodes:
                write_message(f"{node.folder.name}: {json.dumps(shown(node))}")
            for body in lives.outcome.lost[:20]:
                write_message(f"lost: {body.decode()}")
        return lives.outcome
    finally:
        cluster.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.lives", description=__doc__)
    parser.add_argument("--starts", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lives-"))
    outcome = run(folder / "cluster", given.starts, given.seed)
    write_message("\n".join((str(outcome), f"data paths: {folder}", *outcome.tracebacks)), sys.stdout)
    return 1 if outcome.lost or outcome.tracebacks else 0


if __name__ == "__main__":
    sys.exit(main())
