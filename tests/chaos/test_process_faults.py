"""Faults of a process: repeated kill -9, SIGSTOP, no descriptors, a full disk, a bad network.

``CYCLES=200 pytest tests/chaos/test_process_faults.py`` is the long run (docs/evidence/).
"""

import os
import random
import resource
import signal
import sys
import time

import pytest

from tests.support import mounts
from tests.support.proxy import FaultyProxy
from tests.support.traffic import CHANNELS, TOPIC, Ledger, Traffic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(1800)]

CYCLES = int(os.environ.get("CYCLES", "4"))
DRAINED_EVERY = 20
# A longer run sends more messages, and it takes longer until all of them have come.
PATIENCE_S = 60 + 2 * CYCLES
# How long a fault lasts: long enough that timers of a second or two fire during it.
STOPPED_S = float(os.environ.get("STOPPED_S", "3"))
# Log lines: of each group at least one must appear. If the limit comes just after a segment was begun, its
# folder cannot be synced, and publishers are refused because of that.
FELT_WITHOUT_DESCRIPTORS = (
    ("failed to write messages", "failed to sync"),
    ("accept failed",),
    ("failed to write its checkpoint",),
)
# Segments are so small that every cycle begins new ones and removes some.
TINY = "--max-bytes-per-file=20000"
MODES = pytest.mark.parametrize("sync_every", [1, 2500], ids=["strict", "default"])


@pytest.fixture
def ledger():
    return Ledger()


@pytest.fixture
def start(cluster):
    def start_nsqd(sync_every, *flags):
        nsqd = cluster.nsqd(TINY, f"--sync-every={sync_every}", "--mem-queue-size=50", *flags)
        nsqd.post(f"/topic/create?topic={TOPIC}")
        for channel in CHANNELS:
            nsqd.post(f"/channel/create?topic={TOPIC}&channel={channel}")
        return nsqd

    return start_nsqd


def address_of(nsqd):
    return lambda: ("127.0.0.1", nsqd.tcp_port)


def drain(nsqd, ledger, address=None):
    """Consume the whole backlog; return the seconds that it took."""
    began = time.monotonic()
    nothing_new = Traffic(ledger, address or address_of(nsqd), 0)
    nothing_new._threads = nothing_new._threads[1:]
    with nothing_new.flowing():
        wait_until(lambda: not any(ledger.lost().values()), "all has come", PATIENCE_S)
        wait_until(lambda: is_empty(nsqd), "the channels are empty", PATIENCE_S)
    return time.monotonic() - began


def goes_on(ledger):
    """Wait until the fault is over for publishers, and for consumers."""
    acknowledged = len(ledger.acknowledged)
    handled = {name: len(seen) for name, seen in ledger.handled.items()}
    wait_until(lambda: len(ledger.acknowledged) > acknowledged, "something is acknowledged again", PATIENCE_S)
    for name, before in handled.items():
        wait_until(
            lambda name=name, before=before: len(ledger.handled[name]) > before,
            f"something new comes on {name}",
            PATIENCE_S,
        )


def is_empty(nsqd):
    (topic,) = nsqd.get(f"/stats?format=json&topic={TOPIC}")["topics"]
    return all(c["depth"] == c["in_flight_count"] == c["deferred_count"] == 0 for c in topic["channels"])


def report(capsys, ledger, seconds):
    with capsys.disabled():
        sys.stdout.write(
            f" [{len(ledger.acknowledged)} messages, lost 0, {ledger.duplicates()} again, {seconds:.1f} s] "
        )


def check(ledger):
    assert ledger.acknowledged
    assert not any(ledger.lost().values()), {name: lost[:5] for name, lost in ledger.lost().items()}
    assert not ledger.complaints, ledger.complaints[:5]


def administrate(nsqd, rng):
    """Send three other requests about topics and channels at random, and publish to another topic."""
    other = f"other{rng.randrange(3)}"
    for request in rng.sample(
        [
            f"/topic/create?topic={other}",
            f"/topic/delete?topic={other}",
            f"/channel/create?topic={other}&channel=c",
            f"/topic/pause?topic={other}",
            f"/channel/pause?topic={TOPIC}&channel=one",
            f"/channel/unpause?topic={TOPIC}&channel=one",
            f"/channel/empty?topic={other}&channel=c",
        ],
        3,
    ):
        nsqd.request("POST", request)
    nsqd.request("POST", f"/pub?topic={other}", b"x" * 3000)


@MODES
def test_repeated_kills_of_nsqd_lose_no_message_and_redeliver_no_finished_one(
    start, ledger, sync_every, capsys
):
    nsqd = start(sync_every)
    rng = random.Random(sync_every)
    longest = 0.0
    for cycle in range(CYCLES):
        with Traffic(ledger, address_of(nsqd), cycle).flowing():
            time.sleep(rng.uniform(0.1, 0.8))
            administrate(nsqd, rng)
            time.sleep(rng.uniform(0.0, 0.6))
            nsqd.kill()
        ledger.killed()
        began = time.monotonic()
        nsqd.start()
        longest = max(longest, time.monotonic() - began)
        if cycle % DRAINED_EVERY == DRAINED_EVERY - 1 or cycle == CYCLES - 1:
            # Otherwise a long run would end with tens of thousands of unread segments.
            for channel in CHANNELS:
                nsqd.post(f"/channel/unpause?topic={TOPIC}&channel={channel}")
            drain(nsqd, ledger)
            check(ledger)
    report(capsys, ledger, longest)


@MODES
def test_nothing_is_lost_when_process_is_stopped_for_a_while(start, ledger, sync_every, capsys):
    nsqd = start(sync_every)
    with Traffic(ledger, address_of(nsqd), 1).flowing():
        time.sleep(0.5)
        os.kill(nsqd.pid, signal.SIGSTOP)
        time.sleep(STOPPED_S)
        os.kill(nsqd.pid, signal.SIGCONT)
        goes_on(ledger)
    seconds = drain(nsqd, ledger)

    check(ledger)
    report(capsys, ledger, seconds)


@MODES
def test_nothing_is_lost_without_descriptors_and_no_restart_is_needed(start, ledger, sync_every, capsys):
    nsqd = start(sync_every)
    limits = resource.prlimit(nsqd.pid, resource.RLIMIT_NOFILE)
    with Traffic(ledger, address_of(nsqd), 1).flowing():
        time.sleep(0.5)
        resource.prlimit(nsqd.pid, resource.RLIMIT_NOFILE, (10, limits[1]))
        time.sleep(STOPPED_S)
        for ways in FELT_WITHOUT_DESCRIPTORS:
            wait_until(lambda ways=ways: any(way in nsqd.logs() for way in ways), f"it says {ways}", 30)
        resource.prlimit(nsqd.pid, resource.RLIMIT_NOFILE, limits)
        goes_on(ledger)
    seconds = drain(nsqd, ledger)

    check(ledger)
    wait_until(lambda: nsqd.request("GET", "/ping")[0] == 200, "nsqd is healthy", 30)
    report(capsys, ledger, seconds)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 12 MB."""
    with mounts.small_disk(tmp_path / "small", 12) as folder:
        yield folder


@MODES
def test_full_disk_loses_nothing_and_consumption_frees_space(cluster, ledger, small_disk, sync_every, capsys):
    nsqd = cluster.daemon(
        "nsqd",
        [
            "--broadcast-address=127.0.0.1",
            f"--data-path={small_disk}",
            "--max-bytes-per-file=200000",
            f"--sync-every={sync_every}",
            "--mem-queue-size=50",
        ],
    ).start()
    nsqd.post(f"/topic/create?topic={TOPIC}")
    for channel in CHANNELS:
        nsqd.post(f"/channel/create?topic={TOPIC}&channel={channel}")
    number = 1_000_000
    while True:
        batch = b"\n".join(b"%d %b" % (n, b"x" * 3000) for n in range(number, number + 50))
        if nsqd.request("POST", f"/mpub?topic={TOPIC}", batch)[0] != 200:
            break
        ledger.acknowledged.update(range(number, number + 50))
        number += 50
    assert nsqd.request("GET", "/ping")[0] == 500
    seconds = drain(nsqd, ledger)
    wait_until(lambda: nsqd.request("GET", "/ping")[0] == 200, "nsqd is healthy again", 30)
    nsqd.post(f"/pub?topic={TOPIC}", b"5 after")
    ledger.acknowledged.add(5)
    drain(nsqd, ledger)

    check(ledger)
    report(capsys, ledger, seconds)


@MODES
def test_nothing_is_lost_through_network_that_stalls_cuts_and_drops(start, ledger, sync_every, capsys):
    nsqd = start(sync_every, "--msg-timeout=1s")
    ledger.may_not_come_again = False
    with FaultyProxy(("127.0.0.1", nsqd.tcp_port), seed=sync_every) as proxy:
        with Traffic(ledger, lambda: proxy.address, 1).flowing():
            time.sleep(6)
        assert proxy.faults > 5
    seconds = drain(nsqd, ledger)

    check(ledger)
    report(capsys, ledger, seconds)
