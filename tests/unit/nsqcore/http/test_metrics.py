"""``/metrics``: the same text whether it is written in one go or in pieces."""

import asyncio

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from nsqcore.http.metrics import Family, Metrics, PacedCollector

AWKWARD = 'a "quoted\\path"\nand more'


def families(count):
    depth = GaugeMetricFamily("x_depth", "what waits", labels=["topic"])
    seen = CounterMetricFamily("x_seen", "what was seen", labels=["topic", "channel"])
    for number in range(count):
        depth.add_metric([f"t{number}"], number)
        seen.add_metric([f"t{number}", AWKWARD], number * 1e5)
    return [depth, seen, GaugeMetricFamily("x_up", "1 while up\nand not down", 0.25)]


class Whole(Collector):
    def __init__(self, count):
        self._count = count

    def collect(self):
        return families(self._count)


class Paced(PacedCollector):
    def __init__(self, count):
        self._count = count

    def families(self):
        numbers = range(self._count)
        yield Family("x_depth", "what waits", (((f"t{n}",), n) for n in numbers), ("topic",))
        seen = (((f"t{n}", AWKWARD), n * 1e5) for n in numbers)
        yield Family("x_seen", "what was seen", seen, ("topic", "channel"), counter=True)
        yield Family("x_up", "1 while up\nand not down", [((), 0.25)])


def ours(reply):
    return [line for line in reply.body.decode().splitlines() if "x_" in line]


async def test_statistics_written_in_pieces_have_the_same_text():
    for count in (0, 1, 999, 1000, 3000):
        whole, paced = (
            Metrics(Whole(count), "prog").reply(),
            await Metrics(Paced(count), "prog").paced_reply(),
        )

        assert ours(paced) == ours(whole)
        assert paced.headers == whole.headers


async def test_tasks_run_while_statistics_are_written():
    turns = 0
    writing = asyncio.ensure_future(Metrics(Paced(5000), "prog").paced_reply())
    while not writing.done():
        turns += 1
        await asyncio.sleep(0)

    assert turns > 2 * 5000 / 1000
