"""Three nsqd under load that keep copies of each other's logs are killed, stopped, or lose their disks.

    python -m tests.campaign.lives [--minutes M] [--seed N]

Every message that was answered with OK must reach a consumer. A data path is removed only when no message is
on that node alone, because that would be a second fault.
"""

import argparse
import contextlib
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nsqclient.wire.message import MessageRecord
from tests.support.processes import Cluster, Daemon, name_each_other
from tests.support.wire import MESSAGE, Wire, fin, pub, rdy

TOPICS: Final = ("orders", "bills")
CHANNEL: Final = "c"
CARRY_AFTER_S: Final = 2.0
_ANSWERED: Final = b"_heartbeat_"
_QUIET: Final = (OSError, AssertionError, EOFError)


@dataclass
class Ledger:
    """What clients of all threads saw."""

    answered: set[bytes] = field(default_factory=set)
    seen: Counter[bytes] = field(default_factory=Counter)
    refused: int = 0
    # Ids of killed nodes whose messages nobody has given out elsewhere yet, and the time of the kill.
    awaited: dict[int, float] = field(default_factory=dict)
    failover_s: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def took(self, body: bytes, origin: int, at: int) -> None:
        with self.lock:
            self.seen[body] += 1
            if origin != at and origin in self.awaited:
                self.failover_s.append(time.monotonic() - self.awaited.pop(origin))


class Trio:
    """Three nodes, an nsqlookupd, and clients at each of them."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.rng, self.ledger = rng, Ledger()
        self.cluster = Cluster(folder)
        self.cluster.nsqlookupd()
        self.nodes: dict[int, Daemon] = {
            number: self.cluster.nsqd(
                f"--node-id={number}",
                "--replicas=1",
                "--without-keeper=refuse",
                f"--carry-after={CARRY_AFTER_S:.0f}s",
                "--carry-ask=5s",
                "--keeper-patience=15s",
                "--keeper-timeout=2s",
                "--msg-timeout=10s",
                "--max-bytes-per-file=300000",
            )
            for number in (1, 2, 3)
        }
        name_each_other(list(self.nodes.values()))
        self.stopping = threading.Event()
        self.consuming = threading.Event()
        self.consuming.set()
        self._threads = [
            threading.Thread(target=work, args=(number, topic), daemon=True)
            for number in self.nodes
            for topic in TOPICS
            for work in (self._publish, self._consume)
        ]
        for thread in self._threads:
            thread.start()

    # --- clients ---

    def _publish(self, number: int, topic: str) -> None:
        count, rng = 0, random.Random(number)
        while not self.stopping.is_set():
            with contextlib.suppress(*_QUIET), Wire(("127.0.0.1", self.nodes[number].tcp_port)) as wire:
                while not self.stopping.is_set():
                    count += 1
                    body = b"<%d %s %d>" % (number, topic.encode(), count)
                    _, answer = wire.ask_frame(pub(topic, body + b"." * rng.randint(0, 400)))
                    while answer == _ANSWERED:
                        _, answer = wire.frame()
                    with self.ledger.lock:
                        if answer == b"OK":
                            self.ledger.answered.add(body)
                        else:
                            self.ledger.refused += 1
                            break
                    self.stopping.wait(0.005)
            self.stopping.wait(0.05)

    def _consume(self, number: int, topic: str) -> None:
        while not self.stopping.is_set():
            with contextlib.suppress(*_QUIET), Wire(("127.0.0.1", self.nodes[number].tcp_port)) as wire:
                wire.subscribe(topic, CHANNEL, 0)
                ready = 0
                while not self.stopping.is_set():
                    wanted = 50 if self.consuming.is_set() else 0
                    if wanted != ready:
                        wire.send(rdy(ready := wanted))
                    if wire.has_more(0.2):
                        self._take(wire, number)
            self.stopping.wait(0.05)

    def _take(self, wire: Wire, number: int) -> None:
        kind, data = wire.frame()
        if data == _ANSWERED:
            wire.send(b"NOP\n")
        if kind != MESSAGE:
            return
        message = MessageRecord.decode(data)
        body = message.body[: message.body.index(b">") + 1]
        self.ledger.took(body, int(message.id, 16) >> 54, number)
        wire.send(fin(message))

    # --- state of the nodes ---

    def carried(self, number: int) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.nodes[number].get("/carried")
        except _QUIET:
            found = {}
        return found

    def is_copied(self, number: int) -> bool:
        """Say whether a keeper has all of this node's messages, and all that it carries was given out."""
        shown = self.carried(number)
        keepers = shown.get("kept_by", [])
        whole = all(
            one["connected"] and not one["stalled"]
            and one["topics"] == one["linked_topics"] == one["filled_topics"] == len(TOPICS)
            for one in keepers
        )  # fmt: skip
        alone = sum(one["owed"] for one in shown.get("keeps", ()) if not one["connected"])
        waits = any(one["phase"] != "kept" and one["owed"] for one in shown.get("keeps", ()))
        return bool(keepers) and whole and not alone and not waits

    def wait_until_whole(self, seconds: float = 60.0) -> bool:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if all(self.is_copied(number) for number in self.nodes):
                return True
            time.sleep(0.2)
        return False

    def owed(self) -> int:
        total = 0
        for node in self.nodes.values():
            try:
                stats = node.get("/stats?format=json")
            except _QUIET:
                return -1
            for topic in stats["topics"] or ():
                total += topic["depth"]
                for channel in topic["channels"] or ():
                    total += channel["depth"] + channel["in_flight_count"] + channel["deferred_count"]
        return total

    # --- lives ---

    def live(self) -> str:
        """End one life of one node and return how."""
        number = self.rng.choice(sorted(self.nodes))
        node = self.nodes[number]
        how = self.rng.choice(("killed", "killed", "killed and robbed", "stopped for a while"))
        if how == "stopped for a while":
            node.process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
            time.sleep(self.rng.uniform(0.5, 5))
            node.process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]
            return how
        whole = self.wait_until_whole() if how == "killed and robbed" else True
        self.consuming.clear()
        time.sleep(0.5)
        # Messages published now are acknowledged by a keeper, so both nodes have them.
        if how == "killed and robbed" and not (whole and self.wait_until_whole(10)):
            how = "killed"
        node.kill()
        with self.ledger.lock:
            self.ledger.awaited[number] = time.monotonic()
        self.consuming.set()
        if how == "killed and robbed":
            for path in node.folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            self._wait_for(number)
        else:
            time.sleep(self.rng.uniform(0, 2 * CARRY_AFTER_S))
        with self.ledger.lock:
            self.ledger.awaited.pop(number, None)
        self._start(node)
        return how

    @staticmethod
    def _start(node: Daemon) -> None:
        """Start a node, with retries, because an outgoing connection may use its port for a moment."""
        for _ in range(10):
            try:
                node.start()
            except AssertionError:
                if node.is_running():
                    node.kill()
                time.sleep(1)
            else:
                return
        raise AssertionError(f"it does not start: {node.logs()}")

    def _wait_for(self, number: int) -> None:
        """Wait until another node has given out something of a dead node."""
        until = time.monotonic() + 15
        while time.monotonic() < until and number in self.ledger.awaited:
            time.sleep(0.02)

    def end(self) -> list[bytes]:
        """Start all nodes, consume everything, and return messages that were answered and never came."""
        for node in self.nodes.values():
            if not node.is_running():
                self._start(node)
        until, quiet = time.monotonic() + 90, 0
        self.stopping.wait(2)
        publishers = [thread for thread in self._threads if thread.is_alive()]
        while time.monotonic() < until and quiet < 5:
            with self.ledger.lock:
                missing = [body for body in self.ledger.answered if body not in self.ledger.seen]
            quiet = quiet + 1 if not missing and self.owed() < 1000 else 0
            time.sleep(0.5)
        self.stopping.set()
        for thread in publishers:
            thread.join(15)
        self._last_look()
        return sorted(body for body in self.ledger.answered if body not in self.ledger.seen)

    def _last_look(self) -> None:
        """Consume messages that were published while the consumers left."""
        self.stopping.clear()
        readers = [
            threading.Thread(target=self._consume, args=(number, topic), daemon=True)
            for number in self.nodes
            for topic in TOPICS
        ]
        for thread in readers:
            thread.start()
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with self.ledger.lock:
                if all(body in self.ledger.seen for body in self.ledger.answered):
                    break
            time.sleep(0.2)
        self.stopping.set()
        for thread in readers:
            thread.join(15)

    def close(self) -> None:
        self.stopping.set()
        self.cluster.close()


def run(seconds: float, seed: int, folder: Path, tell: Any = lambda _text: None) -> tuple[Trio, list[bytes]]:
    """End lives for so long, two at least; return the trio and the lost messages."""
    trio = Trio(folder, random.Random(seed))
    try:
        if not trio.wait_until_whole():
            raise AssertionError(f"they never began: {[trio.carried(number) for number in trio.nodes]}")
        how: Counter[str] = Counter()
        until = time.monotonic() + seconds
        while how.total() < 2 or time.monotonic() < until:
            how[trio.live()] += 1
            time.sleep(trio.rng.uniform(0.5, 2))
            late = [f"{one:.1f} s" for one in trio.ledger.failover_s[-1:]]
            tell(f"{how.total()}: {dict(how)}, {len(trio.ledger.answered)} answered {late}")
        lost = trio.end()
        ledger = trio.ledger
        again = sum(ledger.seen.values()) - len(ledger.seen)
        late = sorted(ledger.failover_s)
        middle = f"{late[len(late) // 2]:.1f} s, at most {late[-1]:.1f} s" if late else "never seen"
        tell(
            f"{how.total()} lives ({', '.join(f'{count} {what}' for what, count in how.items())}): "
            f"{len(ledger.answered)} answered, {ledger.refused} refused, {len(lost)} lost, {again} again; "
            f"the first message of a dead node elsewhere after {middle} ({len(late)} times, "
            f"--carry-after={CARRY_AFTER_S:.0f}s)"
        )
        return trio, lost
    finally:
        trio.close()


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run and report; the exit code says whether messages were lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.lives")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _, lost = run(60 * chosen.minutes, chosen.seed, Path(folder), _tell)
    for body in lost[:10]:
        _tell(f"lost {body.decode()}")
    return bool(lost)


if __name__ == "__main__":
    raise SystemExit(main())
