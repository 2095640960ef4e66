"""The promise in numbers, with two channels and kill -9 of nsqd; MESSAGES=100000 for a longer run."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from nsqclient._config import Config
from nsqclient._consumer import Consumer
from nsqclient._message import Message
from nsqclient._producer import Producer
from tests.support.processes import Cluster, Daemon
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(300)]

MESSAGES = int(os.environ.get("MESSAGES", "30000"))
BATCH = 100
CHANNELS = ("billing", "analytics")
TOPIC = "orders"

# How often each message was handled, by channel.
Seen = dict[str, Counter[int]]


@pytest.fixture
def nsqd(cluster: Cluster) -> Daemon:
    """An nsqd that is registered with an nsqlookupd and has the topic and both channels."""
    cluster.nsqlookupd()
    return start_nsqd(cluster)


def start_nsqd(cluster: Cluster) -> Daemon:
    nsqd = cluster.nsqd()
    nsqd.post(f"/topic/create?topic={TOPIC}")
    for channel in CHANNELS:
        nsqd.post(f"/channel/create?topic={TOPIC}&channel={channel}")
    return nsqd


@asynccontextmanager
async def readers(lookupd: Daemon) -> AsyncIterator[Seen]:
    """A consumer on each channel that records its handled messages."""
    seen: Seen = {channel: Counter() for channel in CHANNELS}

    def note(channel: str):
        def handle(delivery: Message) -> None:
            seen[channel][int(delivery.body)] += 1

        return handle

    often = Config(lookupd_poll_interval=1, lookupd_poll_jitter=0, max_in_flight=500)
    async with AsyncExitStack() as stack:
        for channel in CHANNELS:
            await stack.enter_async_context(
                Consumer(
                    TOPIC,
                    channel,
                    note(channel),
                    lookupd_addresses=[lookupd.http_address],
                    config=often,
                )
            )
        yield seen


async def publish_all(halfway: asyncio.Event, *nsqds: Daemon) -> None:
    """Publish every number once, ten batches at a time, during all faults of nsqd."""
    half = iter(range(MESSAGES // BATCH // 2))
    batches = iter(range(0, MESSAGES, BATCH))
    async with Producer([nsqd.tcp_address for nsqd in nsqds], retry_seconds=60) as producer:

        async def publish_some() -> None:
            for first in batches:
                await producer.multi_publish(TOPIC, [b"%d" % n for n in range(first, first + BATCH)])
                if next(half, None) is None:
                    halfway.set()

        await asyncio.gather(*(publish_some() for _ in range(10)))


def channel_statistics(nsqd: Daemon) -> list[dict]:
    return nsqd.get(f"/stats?format=json&topic={TOPIC}")["topics"][0]["channels"]


def is_drained(nsqd: Daemon) -> bool:
    return all(
        channel["depth"] == channel["in_flight_count"] == channel["deferred_count"] == 0
        for channel in channel_statistics(nsqd)
    )


async def test_every_message_reaches_both_channels_exactly_once(cluster, nsqd):
    async with readers(cluster.daemons[0]) as seen:
        await publish_all(asyncio.Event(), nsqd)
        await eventually(lambda: is_drained(nsqd), "both channels are empty", 120)

    for channel in CHANNELS:
        assert seen[channel] == Counter(range(MESSAGES)), channel
    assert [statistics["timeout_count"] for statistics in channel_statistics(nsqd)] == [0, 0]


async def test_no_message_is_missing_after_kill_9_and_restart_in_middle(cluster, nsqd, capsys):
    async with readers(cluster.daemons[0]) as seen:
        halfway = asyncio.Event()
        publishing = asyncio.create_task(publish_all(halfway, nsqd))
        await halfway.wait()
        nsqd.kill()
        await asyncio.to_thread(nsqd.start)
        await publishing
        await eventually(lambda: has_all(seen) and is_drained(nsqd), "all were handled", 120)

    report(seen, capsys)


async def test_another_nsqd_takes_over_and_dead_one_gives_its_messages_back_later(cluster, nsqd, capsys):
    other = start_nsqd(cluster)
    async with readers(cluster.daemons[0]) as seen:
        halfway = asyncio.Event()
        publishing = asyncio.create_task(publish_all(halfway, nsqd, other))
        await halfway.wait()
        nsqd.kill()
        await publishing
        await eventually(lambda: is_drained(other), "the other one is empty", 120)
        await asyncio.to_thread(nsqd.start)
        await eventually(lambda: has_all(seen) and is_drained(nsqd), "all were handled", 120)

    assert channel_statistics(other)[0]["message_count"] > 0
    report(seen, capsys)


async def test_messages_flow_on_while_nsqlookupd_is_dead(cluster, nsqd):
    lookupd = cluster.daemons[0]
    async with readers(lookupd) as seen:
        halfway = asyncio.Event()
        publishing = asyncio.create_task(publish_all(halfway, nsqd))
        await halfway.wait()
        lookupd.kill()
        await publishing
        await eventually(lambda: is_drained(nsqd), "both channels are empty", 120)
        await asyncio.to_thread(lookupd.start)
        await eventually(
            lambda: lookupd.request("GET", f"/lookup?topic={TOPIC}")[0] == 200, "nsqd is back", 60
        )

    for channel in CHANNELS:
        assert seen[channel] == Counter(range(MESSAGES)), channel


def has_all(seen: Seen) -> bool:
    return min(map(len, seen.values())) == MESSAGES


def report(seen: Seen, capsys: pytest.CaptureFixture[str]) -> None:
    """Check by number that no message is missing, and print how many were delivered again."""
    for channel in CHANNELS:
        assert set(seen[channel]) == set(range(MESSAGES)), channel
    again = ", ".join(f"{channel} {seen[channel].total() - MESSAGES}" for channel in CHANNELS)
    with capsys.disabled():
        sys.stdout.write(f" [missing 0; delivered again: {again}] ")
