"""The works of one load process in any protocol; everything is encoded before the clock starts."""

import itertools
import random
import select
import time
from array import array
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, Final

from bench.crew import Work, Worker
from bench.load import Address, LoadError
from bench.paced import DUE_SIZE, Pacer
from bench.peers.speech import HEAD, SILENT_S, Order, Session, Speech

# Mixed bodies have 100 to 300 bytes, each length as likely; VARIANTS batches of them are encoded.
MIXED: Final = (100, 300)
VARIANTS: Final = 8


def bodies(size: int | None, count: int, seed: int) -> list[bytes]:
    if size is not None:
        return [b"x" * size] * count
    lengths = random.Random(seed)
    return [b"x" * lengths.randint(*MIXED) for _ in range(count)]


def batch_of(speech: Speech, size: int | None) -> int:
    """Return the number of messages in a batch, which is smaller if they are long."""
    return max(1, min(speech.batch, 128_000 // (size or MIXED[1])))


def closed_loop(
    speech: Speech, address: Address, queue: str, size: int | None, conns: int, seconds: float
) -> Work:
    """Return work that keeps one message under way on each of *conns* connections."""

    def work(worker: Worker) -> None:
        sessions = [speech.publisher(address, queue) for _ in range(conns)]
        texts = bodies(size, VARIANTS, seed=1)
        requests = [[session.one(body) for body in texts] for session in sessions]
        worker.start()
        deadline = time.monotonic() + seconds
        worker.note(
            one_alone(sessions[0], requests[0], deadline)
            if conns == 1
            else round_trips(sessions, requests, deadline)
        )
        for session in sessions:
            session.conn.close()

    return work


def one_alone(session: Session, requests: list[bytes], deadline: float) -> int:
    done = 0
    for request in itertools.cycle(requests):
        if time.monotonic() > deadline:
            break
        session.conn.sendall(request)
        while not session.read():
            pass
        done += 1
    return done


def round_trips(sessions: list[Session], requests: list[list[bytes]], deadline: float) -> int:
    by_number = {
        session.conn.fileno(): (session, itertools.cycle(own))
        for session, own in zip(sessions, requests, strict=True)
    }
    done, under_way = 0, len(sessions)
    with closing(select.epoll()) as poller:
        for number, (session, stream) in by_number.items():
            poller.register(number, select.EPOLLIN)
            session.conn.sendall(next(stream))
        while under_way:
            if not (ready := poller.poll(SILENT_S)):
                raise LoadError(f"{under_way} requests were not answered")
            over = time.monotonic() > deadline
            for number, _ in ready:
                session, stream = by_number[number]
                if not session.read():
                    continue
                done += 1
                if over:
                    under_way -= 1
                else:
                    session.conn.sendall(next(stream))
    return done


def pipelined(
    speech: Speech, address: Address, queue: str, size: int | None, quota: int, seconds: float
) -> Work:
    """Return work that publishes batch after batch, several of them under way."""

    def work(worker: Worker) -> None:
        count = batch_of(speech, size)
        sessions = [speech.publisher(address, queue) for _ in range(speech.lanes)]
        texts = [bodies(size, count, seed) for seed in range(VARIANTS if size is None else 1)]
        batches = {session: itertools.cycle([session.batch(text) for text in texts]) for session in sessions}
        worker.start()
        answered = stream(batches, count, quota, time.monotonic() + seconds)
        worker.note(answered * count // sessions[0].answers_to(count))
        for session in sessions:
            session.conn.close()

    return work


def stream(batches: dict[Session, Iterator[bytes]], count: int, quota: int, deadline: float) -> int:
    """Send batches of *count* until *quota* messages are sent or the time is over; return the answers.

    The sessions take turns; each has at most its window of batches under way.
    """
    answered = 0
    owed = dict.fromkeys(batches, 0)
    for sent, session in enumerate(itertools.cycle(batches)):
        if sent * count >= quota or time.monotonic() > deadline:
            break
        session.conn.sendall(next(batches[session]))
        per = session.answers_to(count)
        owed[session] += per
        while owed[session] >= session.window * per:
            found = session.read()
            owed[session] -= found
            answered += found
    for session, left in owed.items():
        while left > 0:
            found = session.read()
            left -= found
            answered += found
    return answered


def numbered(
    speech: Speech, address: Address, queue: str, size: int, first: int, quota: int, seconds: float
) -> Work:
    """Return work that publishes messages with numbers from *first* on, at most until the server is gone.

    It reports how many of them, from the first one on, are certainly confirmed.
    """

    def work(worker: Worker) -> None:
        count = min(batch_of(speech, size), quota)
        session = speech.publisher(address, queue)
        rest = b"x" * (size - HEAD)
        worker.start()
        batches = (
            session.batch([number.to_bytes(HEAD, "big") + rest for number in range(at, at + count)])
            for at in itertools.count(first, count)
        )
        with suppress(LoadError, OSError):
            stream({session: batches}, count, quota, time.monotonic() + seconds)
        worker.note(session.in_order * count // session.answers_to(count))

    return work


def reader(
    speech: Speech, address: Address, queue: str, size: int | None, order: Order | None = None
) -> Work:
    """Return work that acknowledges every message until it is told to stop."""

    def work(worker: Worker) -> None:
        found = speech.consume(address, queue, size, order=order)
        next(found)
        worker.start()
        total = 0
        for count in found:
            if count:
                total += count
                worker.note(total)
            elif worker.told_to_stop():
                break
        found.close()  # type: ignore[attr-defined]

    return work


# --- at a fixed rate ---------------------------------------------------------


class SpokenPacer(Pacer):
    """Paces one session, whose protocol recognises the answers."""

    def __init__(self, session: Session, head: bytes, tail: bytes, period_ns: int) -> None:
        super().__init__([session.conn], head, tail, period_ns)
        self._session = session

    def _answers(self, conn: Any, data: bytes) -> int:  # noqa: ARG002  # there is only one connection
        if not data:
            raise LoadError("the server closed a publisher's connection")
        return self._session.feed(data)


def paced(
    speech: Speech,
    address: Address,
    queue: str,
    size: int,
    period_ns: int,
    found: Any,
    start: Any,
    lasts_s: float,
) -> Work:
    """Return work that publishes at a fixed rate and writes to *found* how late each answer was."""

    def work(worker: Worker) -> None:
        session = speech.publisher(address, queue)
        # Marks the place of the due moment in a command; no other bytes of the command are equal to it.
        mark = bytes(range(0xF0, 0xF0 + DUE_SIZE))
        head, tail = session.one(mark + b"x" * (size - DUE_SIZE)).split(mark)
        waits = array("q")
        worker.start()
        give_up = start[0] + int(lasts_s * 1e9)
        SpokenPacer(session, head, tail, period_ns).run(start[0], len(found), give_up, waits.append)
        found[: len(waits)] = waits.tolist()
        worker.note(len(waits))

    return work


def punctual(speech: Speech, address: Address, queue: str, size: int, found: Any) -> Work:
    """Return work that consumes and writes to *found* how late each message came."""

    def work(worker: Worker) -> None:
        seen = 0

        def look(heads: bytes) -> None:
            nonlocal seen
            now = time.monotonic_ns()
            dues = array("Q", heads)
            dues.byteswap()
            room = len(found) - seen
            found[seen : seen + min(room, len(dues))] = [now - due for due in dues[:room]]
            seen += min(room, len(dues))

        coming = speech.consume(address, queue, size, look, prompt=True)
        next(coming)
        worker.start()
        for _ in coming:
            worker.note(seen)
            if worker.told_to_stop():
                return

    return work
