"""The kinds of faults: each starts some nsqd and disturbs them for a number of seconds."""

import asyncio
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from nsqclient import Config
from nsqclient.testing import MemoryNsqd
from tests.client_campaign.journal import Journal
from tests.client_campaign.slow_line import slow_line
from tests.client_campaign.traffic import TOPIC, Load, Traffic
from tests.support.peers import served
from tests.support.processes import Cluster, Daemon
from tests.support.proxy import FaultyProxy

# Bytes a second of a slow line that is never cut, so every message must come exactly once.
SLOW_BYTES: Final = 500_000
MANY: Final = 100

# Without a limit of attempts, because each delivery lost with a connection counts as one.
PATIENT = Config(
    max_in_flight=200,
    lookupd_poll_interval=0.3,
    lookupd_poll_timeout=2,
    max_backoff_duration=0,
)
# A configuration that notices a dead line in two seconds.
ALERT = replace(PATIENT, read_timeout=2, heartbeat_interval=1)


class Run:
    """One run of one kind."""

    def __init__(self, seconds: float, seed: int) -> None:
        self.journal = Journal()
        self.seed = seed
        self.rng = random.Random(seed)
        self._seconds = seconds

    def is_on(self, began: float) -> bool:
        return time.monotonic() - began < self._seconds

    async def until_it_ends(self, fault: Callable[[], Awaitable[None]]) -> None:
        """Call *fault* repeatedly until the time is over."""
        began = time.monotonic()
        while self.is_on(began):
            await fault()

    def traffic(self, load: Load | None = None, *, nodes: int, **arguments: object) -> Traffic:
        """*arguments* are for producers and consumers; ``spread`` is only for producers."""
        of_producers = {
            "addresses": arguments.pop("nsqd", ()),
            "retry_seconds": 60,
            "publish_timeout": 1.5,
            "spread": arguments.pop("spread", False),
        }
        lookups = {"lookupd_addresses": arguments.pop("lookupd", ()), "config": arguments.pop("config")}
        return Traffic(
            self.journal,
            self.seed,
            load or Load(),
            nodes=nodes,
            to=of_producers | lookups,
            of={"nsqd_addresses": of_producers["addresses"]} | lookups,
        )


def prepared(nsqd: Daemon) -> Daemon:
    nsqd.post(f"/topic/create?topic={TOPIC}")
    for channel in ("loop", "threads"):
        nsqd.post(f"/channel/create?topic={TOPIC}&channel={channel}")
    return nsqd


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    with tempfile.TemporaryDirectory() as folder:
        daemons = Cluster(Path(folder))
        try:
            yield daemons
        finally:
            for daemon in daemons.daemons:
                if daemon.is_running():
                    os.kill(daemon.pid, signal.SIGCONT)
            daemons.close()


async def kills(run: Run) -> None:
    """Kill and restart random nsqd, one at a time, of three that nsqlookupd knows."""
    async with cluster() as daemons:
        lookupd = daemons.nsqlookupd()
        nsqds = [prepared(daemons.nsqd()) for _ in range(3)]

        async def kill() -> None:
            await asyncio.sleep(run.rng.uniform(0.3, 1))
            victim = run.rng.choice(nsqds)
            began = time.monotonic()
            await asyncio.to_thread(victim.kill)
            await asyncio.sleep(run.rng.uniform(0, 1))
            await asyncio.to_thread(victim.start)
            run.journal.fault("kill -9", began, time.monotonic())

        traffic = run.traffic(nodes=3, lookupd=[lookupd.http_address], config=ALERT)
        await traffic.run(run.until_it_ends(kill))


async def bad_line(run: Run) -> None:
    """Use one nsqd behind a proxy that stalls, and cuts in the middle of frames."""
    async with cluster() as daemons:
        nsqd = prepared(daemons.nsqd())
        with FaultyProxy(("127.0.0.1", nsqd.tcp_port), seed=run.seed) as proxy:

            async def look() -> None:
                before = proxy.faults
                began = time.monotonic()
                await asyncio.sleep(0.05)
                for _ in range(proxy.faults - before):
                    run.journal.fault("cut or stall", began, time.monotonic())

            async def look_until_it_ends() -> None:
                await run.until_it_ends(look)
                proxy.is_well = True

            host, port = proxy.address
            traffic = run.traffic(nodes=1, nsqd=[f"{host}:{port}"], config=ALERT)
            await traffic.run(look_until_it_ends())


async def frozen(run: Run) -> None:
    """Freeze one of three nsqd for a while, again and again."""
    async with cluster() as daemons:
        nsqds = [prepared(daemons.nsqd()) for _ in range(3)]

        async def freeze() -> None:
            victim = run.rng.choice(nsqds)
            began = time.monotonic()
            os.kill(victim.pid, signal.SIGSTOP)
            await asyncio.sleep(run.rng.uniform(0.2, 4))
            os.kill(victim.pid, signal.SIGCONT)
            run.journal.fault("freeze", began, time.monotonic())
            await asyncio.sleep(run.rng.uniform(0, 1))

        addresses = [nsqd.tcp_address for nsqd in nsqds]
        traffic = run.traffic(nodes=3, nsqd=addresses, spread=True, config=ALERT)
        await traffic.run(run.until_it_ends(freeze))


async def slow(run: Run) -> None:
    """Use a slow line that is never cut, so nothing may come twice and nothing may fail."""
    async with cluster() as daemons:
        nsqd = prepared(daemons.nsqd())
        async with slow_line("127.0.0.1", nsqd.tcp_port, SLOW_BYTES) as address:

            async def wait() -> None:
                await asyncio.sleep(0.05)

            # More than the line carries, so publishes must wait and must not be taken for failed.
            load = Load(per_turn=1, pause=0.1, sizes=(10, 1000, 100_000))
            config = replace(PATIENT, max_in_flight=20)
            traffic = run.traffic(load, nodes=1, nsqd=[address], config=config)
            traffic._to["publish_timeout"] = 60
            await traffic.run(run.until_it_ends(wait))
    if run.journal.failed:
        run.journal.never_ended.append(f"failed on a sound line: {dict(run.journal.failed)}")


class Discovery:
    """An nsqlookupd that names given addresses, and may be away, be silent or answer nonsense."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses
        self.mood = "well"
        self._goes_on = asyncio.Event()

    def be(self, mood: str) -> None:
        self.mood = mood
        if mood == "silent":
            self._goes_on.clear()
        else:
            self._goes_on.set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            if self.mood == "silent":
                await self._goes_on.wait()
            producers = [
                {"broadcast_address": host, "tcp_port": int(port), "http_port": 1, "hostname": host}
                for host, _, port in (address.partition(":") for address in self.addresses)
            ]
            body = json.dumps({"channels": [], "producers": producers}).encode()
            if self.mood == "mad":
                body = body[: len(body) // 2]
            if self.mood != "away":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        async with served(self.answer) as address:
            yield address


async def many(run: Run) -> None:
    """Use a hundred nsqd, of which always some freeze and some cut their connections."""
    async with AsyncExitStack() as stack:
        nsqds = [stack.enter_context(MemoryNsqd()) for _ in range(MANY)]
        discovery = Discovery([nsqd.address for nsqd in nsqds])
        lookupd = await stack.enter_async_context(discovery.serving())

        async def disturb() -> None:
            some = run.rng.sample(nsqds, 5)
            began = time.monotonic()
            for nsqd in some[:2]:
                nsqd.freeze()
            for nsqd in some[2:]:
                nsqd.drop_connections()
            await asyncio.sleep(run.rng.uniform(0.1, 0.5))
            for nsqd in some[:2]:
                nsqd.thaw()
            for kind in ("freeze", "freeze", "cut", "cut", "cut"):
                run.journal.fault(kind, began, time.monotonic())

        config = replace(PATIENT, max_in_flight=400)
        load = Load(per_turn=4, pause=0.02, sizes=(10, 200))
        await run.traffic(load, nodes=MANY, lookupd=[lookupd], config=config).run(run.until_it_ends(disturb))


async def discovery_away(run: Run) -> None:
    """Let two nsqlookupd be away, be silent or answer nonsense, while sometimes an nsqd is restarted."""
    async with cluster() as daemons:
        nsqds = [prepared(daemons.nsqd()) for _ in range(2)]
        discoveries = [Discovery([nsqd.tcp_address for nsqd in nsqds]) for _ in range(2)]
        async with discoveries[0].serving() as one, discoveries[1].serving() as other:

            async def fault() -> None:
                for discovery in discoveries:
                    mood = run.rng.choice(("away", "silent", "mad"))
                    discovery.be(mood)
                    run.journal.done[f"nsqlookupd {mood}"] += 1
                await asyncio.sleep(run.rng.uniform(0.2, 0.8))
                if run.rng.random() < 0.5:
                    victim = run.rng.choice(nsqds)
                    began = time.monotonic()
                    await asyncio.to_thread(victim.restart)
                    run.journal.fault("restart", began, time.monotonic())
                run.rng.choice(discoveries).be("well")
                await asyncio.sleep(run.rng.uniform(0, 0.5))

            traffic = run.traffic(nodes=2, lookupd=[one, other], config=PATIENT)
            await traffic.run(run.until_it_ends(fault))


KINDS: Final[dict[str, Callable[[Run], Awaitable[None]]]] = {
    "kills": kills,
    "bad-line": bad_line,
    "frozen": frozen,
    "slow": slow,
    "many": many,
    "discovery": discovery_away,
}
