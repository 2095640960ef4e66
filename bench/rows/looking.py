"""How late messages are while a client requests pages of ``/messages`` of several MiB."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.metrics import Metric, Plan, Reading, Readings, Row, less
from bench.rows.latency import SHARES, WISHES, at_rate
from bench.rows.work import create, delete, fill
from bench.server import Server

_RATE: Final = 5_000
# The requested messages have bodies of 1 KB and exceed one answer.
_BODY: Final = 1_000
_MESSAGES: Final = 100_000
# The most by which a message may be later than without such requests.
MAX_MS: Final = 5.0


def latency_looked(server: Server, plan: Plan) -> Readings:
    """Measure deliveries at 5,000/s with and without a client that asks for page after page."""
    count = min(_MESSAGES, plan.messages // 5)
    topic = create(server, "looked", ["ch"])
    fill(server, topic, Plan(_BODY, count, 60), count)
    alone = at_rate(server, plan, rate=_RATE, wishes=WISHES[_RATE])
    answers: list[int] = []
    with _looking(server, topic, answers):
        beside = at_rate(server, plan, rate=_RATE, wishes=WISHES[_RATE])
    delete(server, topic)
    later = {f"later {name}": Reading(beside[name].value - alone[name].value) for name, _ in SHARES}
    beside = {name: beside[name] for name, _ in SHARES}
    pages = {"answers": Reading(len(answers)), "mib": Reading(max(answers, default=0) / (1 << 20))}
    return beside | later | pages


@contextmanager
def _looking(server: Server, topic: str, answers: list[int]) -> Iterator[None]:
    """Ask for one page after the other until the end of the block; *answers* gets the bytes of each."""
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            answers.append(len(server.ask("GET", f"/messages?topic={topic}&channel=ch&limit=10000")))

    asker = threading.Thread(target=look)
    asker.start()
    try:
        yield
    finally:
        ended.set()
        asker.join()


ROWS: Final = [
    Row(
        "latency_looked",
        "latency at 5,000/s next to pages of /messages",
        (
            *(less(name, f"ms, {name} to the consumer") for name, _ in SHARES),
            *(less(f"later {name}", f"ms, {name} later than without", limit=MAX_MS) for name, _ in SHARES),
            Metric("answers", "pages"),
            Metric("mib", "MiB, the largest page"),
        ),
        latency_looked,
        most_runs=2,
    )
]
