import asyncio
import io

import pytest

from nsqclient.wire.durations import SECOND
from nsqcore.process.logs import Log, LogLevel
from nsqd.options import NsqdOptions
from nsqd.server.statistics.statsd import Statsd, metrics, packets, resolve_prefix

NOW_NS = 1_700_000_000_000_000_000
NO_LATENCY = {"count": 0, "percentiles": None}


def channel(name, messages=0, **statistics):
    zero = dict.fromkeys(("depth", "backend_depth", "in_flight_count", "deferred_count", "requeue_count"), 0)
    zero |= {"timeout_count": 0, "client_count": 0, "oldest_message_time": 0, "message_count": messages}
    return zero | {"channel_name": name, "e2e_processing_latency": NO_LATENCY} | statistics


def topic(name, messages=0, channels=(), **statistics):
    zero = dict.fromkeys(("message_bytes", "depth", "backend_depth"), 0)
    return (
        zero
        | {"topic_name": name, "message_count": messages, "e2e_processing_latency": NO_LATENCY}
        | {"channels": list(channels)}
        | statistics
    )


class Snapshots:
    """Returns one snapshot after another."""

    def __init__(self, *snapshots):
        self._snapshots = iter(snapshots)

    async def snapshot(self, wanted):
        return next(self._snapshots)


def statsd(*snapshots, log=None, **options):
    given = {"statsd_address": "127.0.0.1:1", "statsd_prefix": "nsq.h.", "statsd_mem_stats": False} | options
    return Statsd(Snapshots(*snapshots), NsqdOptions(**given), log or Log("", LogLevel.FATAL))


def test_percentiles_keep_their_names_apart():
    latency = {"count": 1, "percentiles": [{"quantile": q, "value": 7} for q in (1.0, 0.999, 0.99)]}
    snapshot = {"topics": [topic("t", e2e_processing_latency=latency)]}

    names = [name for name, _, _ in metrics(snapshot, exclude_ephemeral=False, now_ns=NOW_NS)]

    assert names[4:] == [f"topic.t.e2e_processing_latency_{percent}" for percent in ("100", "99_9", "99")]


def test_ephemeral_ones_can_be_left_out():
    snapshot = {"topics": [topic("t", channels=[channel("c#ephemeral")]), topic("u#ephemeral")]}

    assert {
        name.split(".")[1] for name, _, _ in metrics(snapshot, exclude_ephemeral=True, now_ns=NOW_NS)
    } == {"t"}
    assert len(list(metrics(snapshot, exclude_ephemeral=True, now_ns=NOW_NS))) == 4


async def test_counters_are_what_came_since_push_before():
    pushes = statsd(*({"topics": [topic("t", count)]} for count in (5, 8, 2)))

    lines = [(await pushes.lines())[0] for _ in range(3)]

    # The last is a topic that was deleted and created again: it has counted two messages.
    assert lines == [
        b"nsq.h.topic.t.message_count:5|c\n",
        b"nsq.h.topic.t.message_count:3|c\n",
        b"nsq.h.topic.t.message_count:2|c\n",
    ]


async def test_counts_of_earlier_runs_are_not_pushed_again():
    pushes = statsd(*({"topics": [topic("t", count)]} for count in (1_000_000, 1_000_003)))

    await pushes.begin()

    assert (await pushes.lines())[0] == b"nsq.h.topic.t.message_count:3|c\n"


@pytest.mark.parametrize(
    ("template", "prefix"),
    [("nsq.%s", "nsq.10_0_0_1_4151."), ("nsq.", "nsq."), ("", ""), ("%s", "10_0_0_1_4151.")],
)
def test_prefix_names_host(template, prefix):
    assert resolve_prefix(template, "10.0.0.1", 4151) == prefix


def test_lines_are_not_cut_by_packets():
    lines = [b"x" * size for size in (5, 5, 3, 20, 1)]

    assert packets(lines, 10) == [b"x" * 10, b"xxx", b"x" * 20, b"x"]
    assert packets([], 10) == []


async def collector():
    """A statsd daemon: its address, and its received packets."""
    received = asyncio.Queue()

    class Receiver(asyncio.DatagramProtocol):
        def datagram_received(self, data, addr):
            received.put_nowait(data)

    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        Receiver, local_addr=("127.0.0.1", 0)
    )
    return transport, f"127.0.0.1:{transport.get_extra_info('sockname')[1]}", received


async def test_stop_in_middle_of_push_loses_none_of_its_counters():
    transport, address, received = await collector()
    snapshots = [{"topics": [topic("t", count, message_bytes=count)]} for count in (5, 7)]
    pusher = statsd(*snapshots, statsd_address=address, statsd_interval=3 * SECOND, statsd_udp_packet_size=1)
    task = asyncio.create_task(pusher.run())

    async with asyncio.timeout(10):
        lines = [await received.get()]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        lines += [await received.get() for _ in range(7)]

    assert [line for line in lines if line.endswith(b"|c\n")] == [
        b"nsq.h.topic.t.message_count:5|c\n",
        b"nsq.h.topic.t.message_bytes:5|c\n",
        b"nsq.h.topic.t.message_count:2|c\n",
        b"nsq.h.topic.t.message_bytes:2|c\n",
    ]
    transport.close()


async def test_stop_does_not_wait_for_name_server_that_is_silent(monkeypatch):
    async def silence(*_args, **_options):
        await asyncio.sleep(60)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", silence)
    monkeypatch.setattr("nsqd.server.statistics.statsd.RESOLVE_S", 0.01)
    said = io.StringIO()
    pusher = statsd(log=Log("", LogLevel.ERROR, said), statsd_address="statsd.example:8125")
    task = asyncio.create_task(pusher.run())
    await asyncio.sleep(0)

    async with asyncio.timeout(10):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert "failed to create UDP socket to statsd(statsd.example:8125) - no answer" in said.getvalue()
