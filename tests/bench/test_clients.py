"""The benchmark of client libraries runs, and gives no figures for a run in which messages are missing."""

import pytest

from bench.clients.__main__ import check, main, parse, table
from bench.load import LoadError


def test_our_client_is_measured_at_every_work(capsys):
    assert main(["--libraries=ours", "--messages=1000", "--repeat=1", "--loop=asyncio"]) == 0

    rows = capsys.readouterr().out.splitlines()

    assert [row.split(" | ")[0] for row in rows[2:]] == [
        "| publish, many under way",
        "| publish, one after the other",
        "| publish, 1,000 awaited together",
        "| publish in batches of 100",
        "| publish without asyncio, many under way",
        "| consume, FIN for each",
        "| consume by a coroutine",
        "| consume in four threads",
    ]


def test_the_table_compares_with_the_best_of_the_others():
    args = parse(["--libraries=ours,ansq,gnsq", "--works=publish"])
    results = {
        ("publish", "ours"): (1000.0, 1.0),
        ("publish", "ansq"): (100.0, 8.0),
        ("publish", "gnsq"): (50.0, 4.0),
    }

    assert table(args, results).endswith("| 1,000 (1.0) | 100 (8.0) | 50 (4.0) | 10.0 (4.0) |")


class Stats:
    """A server that is only asked for its figures."""

    def __init__(self, count: int, **channel: int) -> None:
        figures = {
            "depth": 0,
            "in_flight_count": 0,
            "deferred_count": 0,
            "timeout_count": 0,
            "requeue_count": 0,
        }
        self._topic = {"message_count": count, "channels": [{**figures, **channel}]}

    def topic_stats(self, _topic: str) -> dict:
        return self._topic


def test_a_run_that_lost_or_left_messages_does_not_count():
    check(Stats(10), "t", "consume", 10)
    with pytest.raises(LoadError, match="9 of 10 messages arrived"):
        check(Stats(9), "t", "publish", 10)
    with pytest.raises(LoadError, match="1 messages left of 10"):
        check(Stats(10, in_flight_count=1), "t", "consume", 10)
