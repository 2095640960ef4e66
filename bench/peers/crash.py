"""A waiting backlog: what it costs, and what survives ``kill -9`` in the middle of publishing."""

import time
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import Any, Final

from bench.crew import Work, Worker, crew_of
from bench.load import Address, LoadError
from bench.peers import works
from bench.peers.brokers import Broker
from bench.peers.process import Running, running
from bench.peers.rows import PATIENCE, Figures
from bench.peers.speech import HEAD, Speech

IDLE_S: Final = 1.0
# The broker is killed this long after the second publishing began.
KILLED_AFTER_S: Final = 0.5
# If no message came for this long, no more are expected.
NO_MORE_S: Final = 4.0
# Numbers of the second publishing start here, to tell the two apart.
SECOND: Final = 1 << 22
QUEUE: Final = "backlog"


def crash(broker: Broker, folder: Path, size: int, messages: int, seconds: float) -> Figures:
    """Publish *messages*, or as many as *seconds* allow, then kill the broker while more are published."""
    speech = broker.speech
    with running(broker.commands, speech.ready, folder) as one:
        speech.create(one.address, QUEUE)
        empty, cpu = one.memory_mib(), one.cpu_seconds()
        first = published(works.numbered(speech, one.address, QUEUE, size, 0, messages, seconds))
        if not first:
            raise LoadError(f"{broker.name} took nothing")
        found = {
            "waiting": first,
            "server us": (one.cpu_seconds() - cpu) * 1e6 / first,
            "bytes": (one.memory_mib() - empty) * (1 << 20) / first,
            "idle %": idle(one),
        }
        second = published(works.numbered(speech, one.address, QUEUE, size, SECOND, SECOND, PATIENCE), one)
        seen = RawArray("B", 2 * SECOND)
        found |= restarted(one, speech, size, first + second, seen)
    lost = sum(not seen[number] for number in (*range(first), *range(SECOND, SECOND + second)))
    return found | {"answered": first + second, "lost": lost}


def published(work: Work, to_kill: Running | None = None) -> int:
    """Run *work* and return how many messages were confirmed; kill *to_kill* meanwhile, if given."""
    with crew_of([work]) as crew:
        crew.begin()
        if to_kill is not None:
            time.sleep(KILLED_AFTER_S)
            to_kill.kill()
        crew.wait(range(1), 3 * PATIENCE)
        return crew.total()


def idle(one: Running) -> float:
    before = one.cpu_seconds()
    time.sleep(IDLE_S)
    return (one.cpu_seconds() - before) / IDLE_S * 100


def restarted(one: Running, speech: Speech, size: int, expected: int, seen: Any) -> Figures:
    """Start the broker again and consume everything that comes; *seen* counts each number."""
    began = time.monotonic()
    one.start_again()
    one.wait()
    found = {"start s": time.monotonic() - began}
    first = RawArray("d", 1)
    with crew_of([counting(speech, one.address, size, seen, first)]) as crew:
        crew.begin()
        last, since = 0, time.monotonic()
        # Read confirmed, unconfirmed and repeated messages until no more come.
        while time.monotonic() - since < NO_MORE_S:
            if (now := crew.total()) != last:
                last, since = now, time.monotonic()
            elif now >= expected and not speech.owed(one.address, QUEUE):
                break
            time.sleep(0.05)
        crew.dismiss()
    if first[0]:
        found["first message s"] = first[0] - began
    return found | {"came": last, "twice": last - sum(map(bool, seen))}


def counting(speech: Speech, address: Address, size: int, seen: Any, first: Any) -> Work:
    """Return work that consumes and counts each number in *seen*."""

    def work(worker: Worker) -> None:
        total = 0

        def look(heads: bytes) -> None:
            first[0] = first[0] or time.monotonic()
            for at in range(0, len(heads), HEAD):
                number = int.from_bytes(heads[at : at + HEAD], "big")
                seen[number] = min(seen[number] + 1, 255)

        coming = speech.consume(address, QUEUE, size, look)
        next(coming)
        worker.start()
        for count in coming:
            total += count
            if count:
                worker.note(total)
            elif worker.told_to_stop():
                return

    return work
