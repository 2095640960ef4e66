"""Every number has the broker's promise beside it, and a failed row is marked as failed."""

from bench.peers.brokers import KILL, POWER, Broker
from bench.peers.nsq import Nsq
from bench.peers.tables import page

FOUND = [Broker(name, promise, "by", Nsq(), lambda *_: []) for name, promise in (("a", KILL), ("b", POWER))]


def test_a_line_has_the_promise_and_medians_of_every_size():
    runs = [
        {"rate": rate, "server us": 1.0, "load us": 0.5, "flushes": 1.0} for rate in (1000.0, 3000.0, 9000.0)
    ]

    found = page({"one": {"200": {"a": runs, "b": [{"failed": 1}]}, "4k": {"a": runs[:1]}}}, FOUND)

    assert "| a | kill -9 | by | 3,000 | 1.00 | 0.50 | 1 | 1,000 | 1.00 | 0.50 | 1 |" in found
    assert "| b | power cut | by | failed | failed | failed | failed |  |  |  |  |" in found


def test_a_crash_tells_what_was_lost_and_a_broker_without_the_row_has_no_line():
    found = page({"crash": {"200": {"a": [{"waiting": 5, "answered": 7, "lost": 2, "twice": 0}]}}}, FOUND)

    assert "| a | kill -9 | by | 5 |  |  |  |  |  | 7 | 2 | 0 |" in found
    assert "| b |" not in found
