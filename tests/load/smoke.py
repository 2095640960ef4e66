"""Half a minute of load on a cluster of its own, and one sentence when it did not go as it must.

    python -m tests.load.smoke                 everything must go well
    python -m tests.load.smoke --kill          one nsqd is killed with -9 and restarted in the middle

Needs the extra ``load``. Locust runs in a process of its own; this one only starts, watches and compares.
"""

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.load.journal import Comparison, Journal
from tests.load.reader import Reader
from tests.support.processes import Cluster, Daemon
from tests.support.waiting import wait_until

PROJECT: Final = Path(__file__).parents[2]
TOPIC: Final = "load"
CHANNEL: Final = "load"

# Two consumers, four publishers of single messages, two of batches.
USERS: Final = 8

# A rest after each request: enough load to find faults, few enough messages to compare them all.
PAUSE_SECONDS: Final = 0.01

# How long the killed nsqd stays away, so that publishers must turn to the other one.
AWAY_SECONDS: Final = 1.0

# For what locust leaves in the channel when it stops.
DRAIN_SECONDS: Final = 60

# What a client sees of an nsqd that is killed; anything else is an error of the cluster, also then.
LOST_CONNECTION: Final = re.compile(r"^(Connection\w*Error|BrokenPipeError|TimeoutError)\b")


class LoadError(Exception):
    """The load could not be put on the cluster; the text says why."""


@dataclass(frozen=True)
class Figures:
    """What a run has shown."""

    seconds: float
    requests: list[dict[str, Any]]
    errors: dict[str, int]
    """Error text -> how often it happened."""
    messages: Comparison

    def __str__(self) -> str:
        per_second = self.messages.received / self.seconds
        lines = [
            f"{'request':10} {'count':>8} {'failed':>7} {'median':>8} {'95 %':>8} {'99 %':>8} {'longest':>8}"
        ]
        for request in self.requests:
            times = Times(request["response_times"])
            lines.append(
                f"{request['method']:10} {request['num_requests']:>8} {request['num_failures']:>7}"
                f" {times.share(0.5) or '<1':>5} ms {times.share(0.95) or '<1':>5} ms"
                f" {times.share(0.99) or '<1':>5} ms"
                f" {request['max_response_time']:>5.0f} ms"
            )
        lines += [f"{count} x {error}" for error, count in self.errors.items()]
        lines.append(
            f"messages: {self.messages.acked} acknowledged, {self.messages.received} received"
            f" ({per_second:.0f}/s), {self.messages.duplicates} duplicates,"
            f" {self.messages.unsure} without an answer, missing {len(self.messages.missing)}"
        )
        return "\n".join(lines)

    def fault(self, *, killed: bool) -> str | None:
        """Return the sentence that tells what is wrong, if anything is."""
        unexpected = [error for error in self.errors if not (killed and LOST_CONNECTION.match(error))]
        if unexpected:
            count = sum(self.errors[error] for error in unexpected)
            return f"{count} requests failed, the first with: {unexpected[0]}"
        sentence = self.messages.fault(duplicates_allowed=killed)
        if sentence:
            return sentence
        quiet = [kind for kind in ("PUB", "MPUB", "DELIVERY") if not self._count(kind)]
        if quiet:
            return f"no {' and no '.join(quiet)} succeeded, so nothing was shown"
        if killed and not self.errors:
            return "nobody noticed that an nsqd was killed, so nothing was shown"
        return None

    def _count(self, kind: str) -> int:
        return sum(r["num_requests"] - r["num_failures"] for r in self.requests if r["method"] == kind)


class Times:
    """A histogram of milliseconds, as locust keeps it."""

    def __init__(self, histogram: dict[str, int]) -> None:
        self._counts = sorted((int(float(bucket)), count) for bucket, count in histogram.items())

    def share(self, part: float) -> int:
        """Return the time within which this part of the requests was answered."""
        left = part * sum(count for _, count in self._counts)
        for milliseconds, count in self._counts:
            left -= count
            if left <= 0:
                return milliseconds
        return 0


def run(folder: Path, seconds: int = 30, *, kill: bool = False) -> Figures:
    """Start a cluster below ``folder``, put load on it, read what is left, stop it."""
    cluster = Cluster(folder)
    try:
        lookupd = cluster.nsqlookupd()
        nsqds = [cluster.nsqd(), cluster.nsqd()]
        journal = folder / "journal"
        journal.mkdir()
        began = time.monotonic()
        locust = start_locust(folder, journal, lookupd, seconds)
        try:
            if kill:
                kill_in_the_middle(nsqds[0], locust, began + seconds / 2)
            locust.wait(seconds + 60)
        finally:
            if locust.poll() is None:
                locust.kill()
                locust.wait()
        taken = time.monotonic() - began
        if locust.returncode:
            raise LoadError(f"locust ended with {locust.returncode}: {(folder / 'locust.log').read_text()}")
        read_the_rest(journal, lookupd, nsqds)
        return Figures(taken, *results(folder), Comparison.of(journal))
    finally:
        cluster.close()


def start_locust(folder: Path, journal: Path, lookupd: Daemon, seconds: int) -> subprocess.Popen[bytes]:
    with (folder / "locust.log").open("wb") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "locust", "-f", str(PROJECT / "tests" / "load" / "locustfile.py")),
                *("--headless", "--only-summary", "-u", str(USERS), "-r", "100", "-t", f"{seconds}s"),
                # Users finish the request they are in; what failed is judged here and not by the exit code.
                *("--stop-timeout", "10", "--exit-code-on-error", "0"),
                *("--csv", str(folder / "locust"), "--json-file", str(folder / "locust")),
                f"--lookupd-http-address={lookupd.http_address}",
                f"--topic={TOPIC}",
                f"--channel={CHANNEL}",
                f"--journal={journal}",
                f"--pause={PAUSE_SECONDS}",
            ],
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def kill_in_the_middle(nsqd: Daemon, locust: subprocess.Popen[bytes], at: float) -> None:
    def is_time(moment: float) -> bool:
        return time.monotonic() >= moment or locust.poll() is not None

    wait_until(lambda: is_time(at), "half of the time has passed", seconds=at - time.monotonic() + 10)
    nsqd.kill()
    back = time.monotonic() + AWAY_SECONDS
    wait_until(lambda: is_time(back), "the nsqd was away", seconds=AWAY_SECONDS + 10)
    nsqd.start()


def read_the_rest(journal: Path, lookupd: Daemon, nsqds: list[Daemon]) -> None:
    """Consume what the load left behind, until every nsqd says that nothing is owed any more."""
    rest = Journal(journal, "received", "rest")
    reader = Reader(lookupd.http_address, TOPIC, CHANNEL, rest)
    deadline = time.monotonic() + DRAIN_SECONDS
    try:
        while (left := sum(map(owed, nsqds))) and time.monotonic() < deadline:
            stop = time.monotonic() + 1
            while time.monotonic() < stop:
                reader.turn(0.1)
        if left:
            raise LoadError(f"{left} messages were still owed {DRAIN_SECONDS} s after the load had ended")
    finally:
        reader.close()
        rest.close()


def owed(nsqd: Daemon) -> int:
    """Return how many messages of the topic this nsqd has not got rid of."""
    stats = nsqd.get(f"/stats?format=json&topic={TOPIC}&include_clients=false")
    return sum(
        topic["depth"]
        + sum(c["depth"] + c["in_flight_count"] + c["deferred_count"] for c in topic["channels"] or [])
        for topic in stats["topics"] or []
    )


def results(folder: Path) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return locust's figures per request, and its errors."""
    requests = json.loads((folder / "locust.json").read_text())
    errors: Counter[str] = Counter()
    with (folder / "locust_failures.csv").open(newline="") as lines:
        for line in csv.DictReader(lines):
            errors[line["Error"]] += int(line["Occurrences"])
    return sorted(requests, key=lambda request: str(request["method"])), errors


def main() -> int:
    parser = argparse.ArgumentParser(prog="smoke", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--kill", action="store_true", help="kill one nsqd in the middle and restart it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nsq-load-") as folder:
        try:
            figures = run(Path(folder), arguments.seconds, kill=arguments.kill)
        except (LoadError, AssertionError, OSError) as error:
            print(f"load: {error}", file=sys.stderr)
            return 1
        print(figures)
        sentence = figures.fault(killed=arguments.kill)
    if sentence:
        print(f"load: {sentence}", file=sys.stderr)
        return 1
    print("load: all went well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
