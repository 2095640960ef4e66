"""One of three nsqd dies under load: every message that the client confirmed is consumed."""

import asyncio
import sys
from collections import Counter

import pytest

from nsqclient import Config, Consumer, Producer
from tests.support.processes import Daemon
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(200)]

TOPIC, CHANNEL = "orders", "billing"
MESSAGES = 20_000

OFTEN = Config(lookupd_poll_interval=0.3, max_in_flight=600)


class Confirmed:
    """Publishes numbers without waiting for each confirmation, and keeps those that were confirmed."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.halfway = asyncio.Event()

    async def publish(self, producer: Producer) -> None:
        for number in range(MESSAGES):
            confirmation = await producer.submit(TOPIC, b"%d" % number)
            confirmation.add_done_callback(lambda done, number=number: self.note(number, done))
            if number == MESSAGES // 2:
                self.halfway.set()
            if number % 200 == 0:
                await asyncio.sleep(0.01)  # slow enough that the nsqd dies in the middle
        await producer.flush()

    def note(self, number: int, done: asyncio.Future) -> None:
        if done.exception() is None:
            self.numbers.add(number)


def statistics(nsqd: Daemon) -> dict:
    [topic] = nsqd.get(f"/stats?format=json&topic={TOPIC}")["topics"]
    return topic


def prepare(nsqd: Daemon) -> Daemon:
    nsqd.create(TOPIC, CHANNEL)
    return nsqd


@pytest.mark.parametrize("kind", ["ours", "go"])
async def test_every_confirmed_message_is_consumed_when_one_of_three_dies(cluster, kind, capsys):
    lookupd = cluster.nsqlookupd()
    start = cluster.nsqd if kind == "ours" else cluster.go_nsqd
    announce = [] if kind == "ours" else [f"--lookupd-tcp-address={lookupd.tcp_address}"]
    nsqds = [prepare(start(*announce)) for _ in range(3)]
    seen: Counter[int] = Counter()
    confirmed = Confirmed()

    async with (
        Producer(lookupd_addresses=[lookupd.http_address], config=OFTEN, retry_seconds=30) as producer,
        Consumer(
            TOPIC,
            CHANNEL,
            lambda delivery: seen.update([int(delivery.body)]),
            lookupd_addresses=[lookupd.http_address],
            config=OFTEN,
        ),
    ):
        publishing = asyncio.create_task(confirmed.publish(producer))
        await confirmed.halfway.wait()
        if kind == "ours":
            nsqds[0].kill()
        else:
            # The original keeps messages in memory, and no client can recover those that kill -9 loses.
            await asyncio.to_thread(nsqds[0].stop)
        await publishing
        assert len(confirmed.numbers) == MESSAGES
        await asyncio.to_thread(nsqds[0].start)
        await eventually(lambda: confirmed.numbers <= seen.keys(), "all confirmed messages are here", 60)

    shares = [statistics(nsqd)["message_count"] for nsqd in nsqds[1:]]
    assert min(shares) > MESSAGES // 10, "both that live had their part"
    with capsys.disabled():
        twice = seen.total() - len(seen)
        sys.stdout.write(f"\n{kind}: {MESSAGES} confirmed, {len(seen)} seen, {twice} twice, {shares}\n")


async def test_new_nsqd_gets_its_share_of_publishes(cluster):
    lookupd = cluster.nsqlookupd()
    prepare(cluster.nsqd())
    async with Producer(lookupd_addresses=[lookupd.http_address], config=OFTEN) as producer:
        await producer.publish(TOPIC, b"first")
        newcomer = prepare(cluster.nsqd())
        await eventually(lambda: len(producer.nsqd_addresses) == 2, "the newcomer is known")

        for n in range(100):
            await producer.publish(TOPIC, b"%d" % n)

    assert statistics(newcomer)["message_count"] == 50


async def test_fixed_addresses_are_spread_over_when_asked(cluster):
    nsqds = [prepare(cluster.nsqd()) for _ in range(3)]
    async with Producer([nsqd.tcp_address for nsqd in nsqds], spread=True) as producer:
        await producer.publish(TOPIC, b"first")
        await eventually(lambda: len(producer.nsqd_addresses) == 3, "all are connected")

        for n in range(30):
            await producer.publish(TOPIC, b"%d" % n)

    assert all(statistics(nsqd)["message_count"] >= 10 for nsqd in nsqds)
