"""Rolling restarts as Kubernetes does them, with real processes: nothing fails, no answer is wrong.

Each nsqd is drained by the preStop hook's own program, stopped and started again; the next one follows when
this one has been ready for a while. The client does not retry, so every publish that fails is counted, not
only lost messages.
"""

import asyncio
import http.client
import json
import sys
from collections import Counter

import pytest

from nsqclient import Config, Consumer, Producer
from nsqtools.counted_load import CountedLoad, producers_of
from tests.support.processes import Cluster, Daemon
from tests.support.service import Service
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(240)]

TOPIC, CHANNEL = "orders", "billing"
PER_SECOND = 300
# kind of roll -> number of nsqd, seconds that each is away, seconds that it is ready before the next one goes
ROLLS = {
    # Ready for less than nsqd.minReadySeconds of the chart, which makes the roll harder.
    "three, drained": (3, 0, 3),
    "three, killed": (3, 0, 3),
    "three, away for long": (3, 8, 0),
    # When the second nsqd refuses publishes, no client has noticed yet that the first one is back.
    "two, the next immediately": (2, 3, 0),
}


def lookups_that_know_each_other(cluster: Cluster) -> list[Daemon]:
    found = [cluster.daemon("nsqlookupd", ["--broadcast-address=127.0.0.1"]) for _ in range(2)]
    for daemon in found:
        daemon.flags += [f"--lookupd-http-address={each.http_address}" for each in found]
        # The default is 15 s. Within this time the other one must answer a question, also on a busy machine.
        daemon.flags.append("--reconnect-interval=5s")
        daemon.start()
    return found


async def wait_until_ready(daemon: Daemon) -> None:
    await eventually(daemon.is_ready, "it is ready again", seconds=60)


async def restart_as_kubernetes_does(nsqd: Daemon, away_s: float, grace: str = "1s") -> None:
    hook = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "nsqd.drain", f"--http-address={nsqd.http_address}"),
        *("--timeout=20s", f"--grace={grace}", "--poll-interval=2s"),
    )
    await hook.wait()
    assert await asyncio.to_thread(nsqd.stop) == 0
    await asyncio.sleep(away_s)
    await asyncio.to_thread(nsqd.start)
    await wait_until_ready(nsqd)


@pytest.mark.parametrize("kind", ROLLS)
async def test_no_publish_fails_while_nsqd_roll(cluster, capsys, kind):
    count, away_s, ready_s = ROLLS[kind]
    lookups = lookups_that_know_each_other(cluster)
    nsqds = [cluster.nsqd() for _ in range(count)]
    addresses = [each.http_address for each in lookups]

    async with Producer(lookupd_addresses=addresses) as producer:
        load = CountedLoad({"lookupd": producer}, TOPIC, PER_SECOND)
        consumer = Consumer(
            TOPIC,
            CHANNEL,
            lambda message: load.take(message.body),
            lookupd_addresses=addresses,
            config=Config(lookupd_poll_interval=1, max_in_flight=300),
        )
        async with consumer, load.running():
            await asyncio.sleep(2)
            for nsqd in nsqds:
                if kind != "three, killed":
                    await restart_as_kubernetes_does(nsqd, away_s)
                else:
                    # A node that dies is not drained.
                    await asyncio.to_thread(nsqd.kill)
                    await asyncio.to_thread(nsqd.start)
                    await wait_until_ready(nsqd)
                await asyncio.sleep(ready_s)
            load.stop()
            assert await load.all_received(60)

    slowest_ms = round(load.slowest_s * 1000)
    with capsys.disabled():
        sys.stdout.write(
            f"\nroll of {kind}: {len(load.confirmed)} confirmed,"
            f" {len(load.failed)} failed, {load.twice} twice, the slowest publish took {slowest_ms} ms\n"
        )
    assert load.failed == []
    assert len(load.confirmed) > PER_SECOND * 10


@pytest.mark.parametrize("late_s", [0.1, 2.0])
async def test_no_publish_fails_through_service_while_nsqd_roll(cluster, capsys, late_s):
    lookupd = cluster.nsqlookupd()
    nsqds = [cluster.nsqd() for _ in range(3)]
    async with (
        Service([nsqd.tcp_port for nsqd in nsqds], late_s=late_s) as tcp,
        Service([nsqd.http_port for nsqd in nsqds], late_s=late_s) as http,
        producers_of(lookupd.http_address, tcp.address, http.address, Config()) as producers,
    ):
        load = CountedLoad(producers, TOPIC, PER_SECOND / 2)
        consumer = Consumer(
            TOPIC,
            CHANNEL,
            lambda message: load.take(message.body),
            lookupd_addresses=[lookupd.http_address],
            config=Config(lookupd_poll_interval=1, max_in_flight=300),
        )
        async with consumer, load.running():
            await asyncio.sleep(2)
            for nsqd in nsqds:
                # Kubernetes takes the endpoint away and runs the hook at the same time.
                tcp.remove(nsqd.tcp_port)
                http.remove(nsqd.http_port)
                await restart_as_kubernetes_does(nsqd, 0, grace="4s")
                tcp.add(nsqd.tcp_port)
                http.add(nsqd.http_port)
                await asyncio.sleep(3)
            load.stop()
            assert await load.all_received(60)

    with capsys.disabled():
        sys.stdout.write(
            f"\nroll with endpoints {late_s} s late: {len(load.confirmed)} confirmed,"
            f" failed: {dict(load.failed_by_kind)}, {load.twice} twice\n"
        )
    assert len(producers) == 6
    assert load.failed == []
    assert len(load.confirmed) > PER_SECOND * 5


def producers_named(lookup: Daemon) -> int:
    """How many nsqd the nsqlookupd names for the topic; a 404 counts as none."""
    connection = http.client.HTTPConnection("127.0.0.1", lookup.http_port, timeout=5)
    try:
        connection.request("GET", f"/lookup?topic={TOPIC}")
        answer = connection.getresponse()
        return len(json.loads(answer.read())["producers"]) if answer.status == 200 else 0
    finally:
        connection.close()


async def test_no_lookup_is_wrong_while_two_nsqlookupd_roll(cluster, capsys):
    lookups = lookups_that_know_each_other(cluster)
    nsqds = [cluster.nsqd() for _ in range(3)]
    for nsqd in nsqds:
        nsqd.post(f"/topic/create?topic={TOPIC}")
    for lookup in lookups:
        await eventually(lambda lookup=lookup: producers_named(lookup) == 3, "all are known", seconds=30)
        await wait_until_ready(lookup)
    answers: Counter[int] = Counter()

    async def ask(done: asyncio.Event) -> None:
        # As a Kubernetes Service does, ask only those that are ready.
        while not done.is_set():
            for lookup in lookups:
                if await asyncio.to_thread(lookup.is_ready):
                    try:
                        answers[await asyncio.to_thread(producers_named, lookup)] += 1
                    except OSError:
                        answers[-1] += 1  # it stopped between the two requests, so it gave no wrong answer
            await asyncio.sleep(0.02)

    done = asyncio.Event()
    asking = asyncio.create_task(ask(done))
    for lookup in lookups:
        await asyncio.sleep(1)
        assert await asyncio.to_thread(lookup.stop) == 0
        await asyncio.to_thread(lookup.start)
        await wait_until_ready(lookup)
    await asyncio.sleep(1)
    done.set()
    await asking

    with capsys.disabled():
        wrong = answers.total() - answers[3] - answers[-1]
        sys.stdout.write(f"\nroll of 2 nsqlookupd: {answers[3]} lookups, {wrong} wrong\n")
    assert set(answers) <= {3, -1}
    assert answers[3] > 50
