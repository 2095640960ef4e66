"""Which publishers wait for which fsync, whom a failed one affects, and when the loop itself syncs."""

import asyncio
import errno
import os
import shutil
import struct
import threading
from pathlib import Path

import pytest

from nsqd.engine.settings import Settings
from nsqd.log.disk import Disk
from nsqd.log.headers import extension
from nsqd.server.fsync import THREADS
from nsqd.server.write_batch import NotStored
from nsqd.storage.topic_log import store_of
from tests.support.turns import Bench
from tests.support.waiting import eventually
from tests.support.wire import sized

OK = (0, b"OK")
FAILED = (1, b"E_PUB_FAILED PUB failed input/output error")


class TopicDisk(Disk):
    """Fails or delays the fsyncs of some topics, by the names of their folders, and records all fsyncs."""

    def __init__(self):
        self.broken = set()
        # Fsyncs of a topic wait until its gate is open.
        self.gates = {}
        self.reached = []
        self.synced = []
        self.folders = []

    def sync(self, fd):
        path = Path(f"/proc/self/fd/{fd}").readlink()
        topic = path.parent.name.removesuffix(".topic")
        if gate := self.gates.get(topic):
            self.reached.append(topic)
            assert gate.wait(20)
        self.synced.append((topic, threading.current_thread() is threading.main_thread()))
        if topic in self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)

    def sync_folder(self, path):
        if path.suffix != ".topic" and "/" in self.gates:
            assert self.gates["/"].wait(20)
        self.folders.append(path)
        super().sync_folder(path)


@pytest.fixture
def disk():
    return TopicDisk()


@pytest.fixture
async def strict(tmp_path, disk):
    """Every publisher waits; no disk is fast enough for the loop."""
    return Bench(tmp_path, disk, sync_every=1, fast_s=0.0)


@pytest.fixture
async def fast(tmp_path, disk):
    """Every publisher waits; any disk is fast enough for the loop."""
    return Bench(tmp_path, disk, sync_every=1, fast_s=60.0)


async def settled(bench, *clients, replies=1):
    """Wait until each client has *replies* replies."""
    bench.write_batch.run()
    async with asyncio.timeout(20):
        while any(len(client.replies) < replies for client in clients):  # noqa: ASYNC110 - threads tell nobody
            await asyncio.sleep(0.001)


def publish(bench, topic, body=b"m"):
    client = bench.connect()
    client.says(b"PUB %b\n" % topic + sized(body))
    return client


async def known(bench):
    """Create a topic, so that a thread has measured how fast the disk is."""
    for _ in range(2):
        await settled(bench, publish(bench, b"t"))


async def test_an_fsync_that_fails_fails_its_own_publishers_and_nobody_else(strict, disk):
    disk.broken.add("bad")
    bad, good = publish(strict, b"bad"), publish(strict, b"good")

    await strict.rest()

    assert (bad.replies, bad.closed) == ([FAILED], True)
    assert (good.replies, good.closed) == ([OK], False)
    assert str(strict.health) == "NOK - input/output error"


@pytest.mark.parametrize("call", ["sync", "sync_folder"])
async def test_no_failure_of_whatever_kind_counts_as_an_fsync(strict, disk, monkeypatch, call):
    def fails(_):
        raise ValueError("not what was expected")

    monkeypatch.setattr(disk, call, fails)
    client = publish(strict, b"t")

    await settled(strict, client)

    assert client.replies == [(1, b"E_PUB_FAILED PUB failed not what was expected")]


async def test_an_error_that_was_waited_for_is_logged_like_any_other(strict, disk, monkeypatch):
    logged = []
    monkeypatch.setattr(strict.clients.log, "error", lambda text, *args: logged.append(text % args))
    disk.broken.add("bad")
    publish(strict, b"bad")

    await strict.rest()

    assert any(line.endswith("] - E_PUB_FAILED PUB failed input/output error") for line in logged), logged


async def test_of_a_connection_s_replies_those_before_the_failure_go_out(strict, disk):
    disk.broken.add("bad")
    client = strict.connect()
    client.says(b"".join(b"PUB %b\n" % topic + sized(b"m") for topic in (b"good", b"bad", b"good")))

    await strict.rest()

    assert client.replies == [OK, FAILED]
    assert client.closed


async def test_nobody_waits_for_the_fsync_of_another_topic(strict, disk):
    gate = disk.gates["held"] = threading.Event()
    awaiting_registration, free = publish(strict, b"held"), publish(strict, b"free")

    await settled(strict, free)

    assert (free.replies, awaiting_registration.replies) == ([OK], [])
    gate.set()
    await strict.rest()
    assert awaiting_registration.replies == [OK]


async def test_publishers_wait_for_no_thread_that_others_keep_busy(strict):
    gate = threading.Event()
    loop = asyncio.get_running_loop()
    # The threads are busy, as with many checkpoints of other topics.
    busy = [loop.run_in_executor(None, gate.wait, 20) for _ in range(40)]
    client = publish(strict, b"t")

    await settled(strict, client)

    assert client.replies == [OK]
    assert not any(job.done() for job in busy)
    gate.set()
    await asyncio.gather(*busy)


async def test_replies_keep_their_order_whichever_topic_is_synced_first(strict, disk):
    gate = disk.gates["held"] = threading.Event()
    client, other = strict.connect(), strict.connect()
    client.says(b"PUB held\n" + sized(b"m"))
    strict.write_batch.run()
    client.says(b"MPUB free\n" + sized(struct.pack(">I", 1) + sized(b"m")))
    strict.write_batch.run()
    client.says(b"CLS\n")
    other.says(b"PUB free\n" + sized(b"m"))

    await settled(strict, other)

    assert client.replies == []
    gate.set()
    await settled(strict, client, replies=3)
    assert client.replies == [OK, OK, (1, b"E_INVALID cannot CLS in current state")]


async def test_new_topics_that_wait_for_the_data_path_share_its_next_sync(strict, disk, tmp_path):
    gate = disk.gates["/"] = threading.Event()
    topics = [b"t%d" % n for n in range(40)]
    clients = [publish(strict, topic) for topic in topics]
    strict.write_batch.run()
    async with asyncio.timeout(20):
        # A topic waits for the data path only after its own fsync.
        while strict.fsync.count < len(topics):  # noqa: ASYNC110 - threads tell nobody
            await asyncio.sleep(0.001)
    assert not any(client.replies for client in clients)
    gate.set()

    await strict.rest()

    assert all(client.replies == [OK] for client in clients)
    assert set(disk.folders) == {tmp_path, *(tmp_path / f"{topic.decode()}.topic" for topic in topics)}
    # One for the first topic, one for those that came while that ran, and one for the last.
    assert disk.folders.count(tmp_path) <= 3


async def test_who_publishes_to_a_topic_of_old_goes_before_all_new_ones(strict, disk):
    await settled(strict, publish(strict, b"old"))
    gate = threading.Event()
    names = [f"new{n}" for n in range(2 * THREADS)]
    disk.gates.update(dict.fromkeys(names, gate))
    new = [publish(strict, name.encode()) for name in names]
    strict.write_batch.run()
    await asyncio.sleep(0)
    old = publish(strict, b"old")

    await settled(strict, old)

    assert old.replies == [OK]
    assert not any(client.replies for client in new)
    gate.set()
    await strict.rest()
    assert all(client.replies == [OK] for client in new)


async def test_in_every_mode_publishers_of_a_topic_that_cannot_be_synced_are_told_so(tmp_path, disk):
    bench = Bench(tmp_path, disk, sync_every=10)
    disk.broken.add("t")
    client = publish(bench, b"t")
    await bench.rest()
    assert client.replies == [OK]
    assert str(bench.health) == "NOK - input/output error"

    for _ in range(5):
        client, other = publish(bench, b"t"), publish(bench, b"other")
        await bench.rest()
        assert (client.replies, other.replies) == ([FAILED], [OK])
        assert str(bench.health) == "NOK - input/output error"

    disk.broken.clear()
    client = publish(bench, b"t")
    await bench.rest()
    assert client.replies == [OK]
    assert bench.health.ok
    # Publishers no longer wait for an fsync.
    disk.gates["t"] = threading.Event()
    client = publish(bench, b"t")
    bench.write_batch.run()
    assert client.replies == [OK]
    disk.gates["t"].set()


async def test_what_could_not_be_synced_is_tried_again_though_nobody_publishes(tmp_path, disk):
    bench = Bench(tmp_path, disk, sync_every=10, trial_s=0.001)
    disk.broken.add("t")
    publish(bench, b"t")
    await bench.rest()
    tried = len(disk.synced)
    async with asyncio.timeout(20):
        while len(disk.synced) < tried + 3:  # noqa: ASYNC110 - nobody is told of a trial
            await asyncio.sleep(0.001)
    assert not bench.health.ok

    disk.broken.clear()
    async with asyncio.timeout(20):
        while not bench.health.ok:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.001)

    # The trials that failed leave no files.
    assert len(list((tmp_path / "t.topic").glob("*.log"))) == 2


class Unremovable(TopicDisk):
    """While *error* is set, no log can be removed, and the data path cannot be synced."""

    def __init__(self):
        super().__init__()
        self.error = None
        self.folders_reached = []

    def remove(self, path):
        if self.error is not None and path.suffix == ".log":
            raise self.error
        super().remove(path)

    def sync_folder(self, path):
        if self.error is None or path.suffix == ".topic":
            super().sync_folder(path)
            return
        gate = self.gates.get("/")
        self.folders_reached.append(path)
        assert gate is None or gate.wait(20)
        raise OSError(errno.EIO, os.strerror(errno.EIO))


async def test_when_the_files_of_failed_trials_cannot_be_removed_syncing_goes_on_and_they_go_later(tmp_path):
    disk = Unremovable()
    bench = Bench(tmp_path, disk, sync_every=10, trial_s=0.001)
    disk.broken.add("t")
    disk.error = OSError(errno.EROFS, os.strerror(errno.EROFS))
    publish(bench, b"t")
    await bench.rest()
    store = store_of(bench.broker.topics["t"])
    await eventually(lambda: len(list((tmp_path / "t.topic").glob("*.log"))) > 3, "trials fail")

    async with asyncio.timeout(20):
        await bench.fsync.synced()
        await bench.fsync.quiesce(store)
    bench.fsync.resume(store)
    bench.broker.topics["t"].take_changed()
    disk.broken.clear()
    disk.error = None
    await eventually(lambda: bench.health.ok, "a trial works")

    # So the next round of upkeep removes them.
    assert bench.broker.topics["t"].take_changed()
    store.cleaner.remove_files()
    assert len(list((tmp_path / "t.topic").glob("*.log"))) == 2


async def test_a_job_that_cannot_end_keeps_nobody_waiting(tmp_path):
    disk = Unremovable()
    bench = Bench(tmp_path, disk, sync_every=1, fast_s=0.0, trial_s=0.001)
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
    disk.error = ValueError("a bug")
    first = disk.gates["/"] = threading.Event()
    clients = [publish(bench, b"bad")]
    bench.write_batch.run()
    await eventually(lambda: disk.folders_reached, "it waits for the data path")
    second = disk.gates["/"] = threading.Event()
    clients.append(publish(bench, b"t0"))
    bench.write_batch.run()
    await eventually(lambda: bench.fsync.count == 2, "the next one does")
    first.set()
    # Behind that, a trial that cannot end and two others wait for one sync of the data path.
    await eventually(lambda: bench.fsync.count == 3, "the trial waits for the data path")
    clients += [publish(bench, b"t1"), publish(bench, b"t2")]
    bench.write_batch.run()
    await eventually(lambda: bench.fsync.count == 5, "the others do")
    second.set()

    await settled(bench, *clients)
    async with asyncio.timeout(20):
        await bench.fsync.synced()
    disk.error = None
    await eventually(lambda: bench.health.ok, "trials work")

    assert all(client.replies == [FAILED] for client in clients)
    assert set(reported) == {"a sync did not end"}


async def test_what_is_published_after_an_fsync_works_again_is_answered_behind_what_still_waits(
    tmp_path, disk
):
    bench = Bench(tmp_path, disk, sync_every=10, trial_s=60)
    disk.broken.add("t")
    publish(bench, b"t")
    await bench.rest()
    disk.broken.clear()
    gate = disk.gates["t"] = threading.Event()
    client = bench.connect()
    message = b"PUB t\n" + sized(b"m")
    client.says(message)
    bench.write_batch.run()
    async with asyncio.timeout(20):
        while not disk.reached:  # noqa: ASYNC110 - threads tell nobody
            await asyncio.sleep(0.001)
    client.says(message)
    bench.write_batch.run()  # this one waits for the job after it
    disk.gates["t"] = threading.Event()
    gate.set()
    await settled(bench, client)
    assert not bench.fsync.failing

    client.says(message)
    bench.write_batch.run()
    assert client.replies == [OK]
    disk.gates["t"].set()
    await settled(bench, client, replies=3)

    assert client.replies == [OK, OK, OK]


async def test_the_names_of_deleted_topics_are_synced_again_after_a_failure(tmp_path, disk):
    bench = Bench(tmp_path, disk, trial_s=0.001)
    await settled(bench, publish(bench, b"t"))
    await bench.fsync.synced()
    real, failures = disk.sync_folder, 2

    def failing(path):
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(path)

    disk.sync_folder = failing
    bench.data.delete(bench.broker.topics["t"])
    with pytest.raises(NotStored):
        await bench.write_batch.names_durable()
    assert len(bench.data.deleted_unsynced) == 1

    async with asyncio.timeout(20):
        while not bench.data.deleted:  # noqa: ASYNC110 - nobody is told of a trial
            await asyncio.sleep(0.001)
    assert bench.data.deleted_unsynced == []


async def test_while_few_wait_and_the_disk_is_fast_the_loop_syncs_by_itself(fast, disk):
    await known(fast)
    disk.synced.clear()
    client = publish(fast, b"t")

    fast.write_batch.run()

    assert client.replies == [OK]
    assert disk.synced == [("t", True)]


async def test_an_fsync_in_the_loop_that_fails_is_no_ok(fast, disk):
    await known(fast)
    disk.broken.add("t")
    client = publish(fast, b"t")

    fast.write_batch.run()

    assert (client.replies, client.closed) == ([FAILED], True)
    assert not fast.health.ok


async def test_who_sends_ahead_is_synced_by_a_thread(fast, disk):
    await known(fast)
    disk.synced.clear()
    client = fast.connect()
    client.says((b"PUB t\n" + sized(b"m")) * 2)

    fast.write_batch.run()
    assert client.replies == []
    await fast.rest()

    assert client.replies == [OK, OK]
    assert disk.synced == [("t", False)]


async def test_on_a_slow_disk_the_loop_never_waits(strict, disk):
    for _ in range(3):
        await settled(strict, publish(strict, b"t"))

    assert disk.synced == [("t", False)] * 3


async def test_it_is_known_how_long_the_last_ones_took(strict):
    assert strict.fsync.percentile_s(0.99) == 0.0
    for _ in range(3):
        await settled(strict, publish(strict, b"t"))

    assert 0 < strict.fsync.percentile_s(0.5) <= strict.fsync.percentile_s(0.99)


async def test_while_a_store_rests_no_thread_touches_it(strict, disk):
    gate = disk.gates["t"] = threading.Event()
    first = publish(strict, b"t")
    strict.write_batch.run()
    await asyncio.sleep(0)
    store = store_of(strict.broker.topics["t"])
    resting = asyncio.create_task(strict.fsync.quiesce(store))
    await asyncio.sleep(0)
    assert not resting.done()
    gate.set()
    await resting
    assert first.replies == [OK]

    second = publish(strict, b"t")
    strict.write_batch.run()
    other = publish(strict, b"other")
    await settled(strict, other)
    assert second.replies == []
    strict.fsync.resume(store)
    await strict.rest()

    assert second.replies == [OK]


async def test_who_gives_up_waiting_for_a_store_to_rest_keeps_nobody_from_syncing_it(strict, disk):
    gate = disk.gates["t"] = threading.Event()
    first = publish(strict, b"t")
    strict.write_batch.run()
    await asyncio.sleep(0)
    resting = asyncio.create_task(strict.fsync.quiesce(store_of(strict.broker.topics["t"])))
    await asyncio.sleep(0)
    second = publish(strict, b"t")
    strict.write_batch.run()
    resting.cancel()
    gate.set()

    async with asyncio.timeout(20):
        await strict.rest()

    assert (first.replies, second.replies, resting.cancelled()) == ([OK], [OK], True)


async def test_who_published_to_a_topic_that_is_deleted_is_answered_when_the_deletion_is_durable(
    strict, disk
):
    await settled(strict, publish(strict, b"t"))
    topic = strict.broker.topics["t"]
    await strict.fsync.quiesce(store_of(topic))
    client = publish(strict, b"t")
    strict.write_batch.run()
    gate = disk.gates["/"] = threading.Event()
    strict.data.delete(topic)
    strict.fsync.resume(store_of(topic))
    for _ in range(10):
        await asyncio.sleep(0)

    # A power cut may bring the folder back, and then nothing in it may be missing.
    assert (client.replies, strict.data.deleted) == ([], [])
    gate.set()
    await settled(strict, client)
    assert (client.replies, len(strict.data.deleted)) == ([OK], 1)


async def test_who_repeats_a_message_while_its_fsync_fails_is_told_so(strict, disk):
    strict.broker.apply(lambda _topic, _channel: Settings(dedup_window_ns=1 << 50))
    topic = strict.broker.topic("t", 0)
    await strict.write_batch.durable(topic)
    disk.broken.add("t")
    gate = disk.gates["t"] = threading.Event()
    with_id = extension({"dedup-id": "1"})
    topic.stage(b"m", 1 << 60, 0, with_id)
    first = strict.write_batch.stored(topic)
    await eventually(lambda: disk.reached, "its fsync runs")
    topic.stage(b"m", 1 << 60, 0, with_id)
    again = strict.write_batch.stored(topic)
    strict.write_batch.run()
    # What the job after it syncs can be made durable.
    gate.set()
    await asyncio.wait([first])
    disk.broken.clear()

    outcomes = await asyncio.gather(first, again, return_exceptions=True)

    assert [str(outcome) for outcome in outcomes] == ["input/output error"] * 2
    # It was not stored by the repetition, so another one is.
    topic.stage(b"m", 1 << 60, 0, with_id)
    await strict.write_batch.stored(topic)
    assert topic.published.repeated == 1


async def test_who_repeats_a_change_whose_note_could_not_be_synced_is_told_so_until_a_checkpoint_has_it(
    tmp_path, disk
):
    bench = Bench(tmp_path, disk, trial_s=0.001)
    checkpoints = bench.checkpoints()
    topic = bench.broker.topic("t", 0)
    await bench.write_batch.durable(topic)
    await checkpoints._round(0.0)
    disk.broken.add("t")

    async def create():
        bench.broker.channel(topic, "c")
        try:
            await bench.write_batch.durable(topic)
        except NotStored as error:
            return str(error)
        return ""

    assert await create() == "input/output error"
    assert await create() == "input/output error"
    disk.broken.clear()
    await eventually(lambda: bench.health.ok, "a trial works")
    # The trial synced a file without the note.
    assert await create() == "input/output error"
    # Others are not affected: what they append can be synced.
    topic.stage(b"m", 1 << 60)
    await bench.write_batch.durable(topic)

    await checkpoints._round(0.0)

    assert await create() == ""


async def test_a_checkpoint_follows_a_note_that_could_not_be_synced_even_if_one_was_written_meanwhile(
    tmp_path, disk
):
    bench = Bench(tmp_path, disk)
    checkpoints = bench.checkpoints()
    topic = bench.broker.topic("t", 0)
    disk.broken.add("t")
    gate = disk.gates["t"] = threading.Event()
    change = bench.write_batch.durable(topic)
    await eventually(lambda: disk.reached, "its fsync runs")
    await checkpoints._round(0.0)
    gate.set()
    await asyncio.wait([change])
    with pytest.raises(NotStored):
        await bench.write_batch.durable(topic)

    await checkpoints._round(0.0)

    await bench.write_batch.durable(topic)


async def test_who_repeats_a_change_that_is_durable_is_told_so_though_messages_cannot_be_synced(
    tmp_path, disk
):
    bench = Bench(tmp_path, disk)
    topic = bench.broker.topic("t", 0)
    bench.broker.channel(topic, "c")
    await bench.write_batch.durable(topic)
    disk.broken.add("t")
    topic.stage(b"m", 1 << 60)
    with pytest.raises(NotStored):
        await bench.write_batch.durable(topic)

    bench.broker.channel(topic, "c")
    await bench.write_batch.durable(topic)

    assert bench.fsync.failing


class FailingSync(Disk):
    """No file can be synced."""

    def sync(self, fd):
        raise OSError(errno.EIO, "no")


async def test_what_has_an_id_and_could_not_be_synced_may_be_published_again(tmp_path):
    bench = Bench(tmp_path, FailingSync(), sync_every=1)
    bench.broker.apply(lambda _topic, _channel: Settings(dedup_window_ns=1 << 40))
    topic = bench.broker.topic("t", 0)
    topic.stage(b"m", 1 << 60, 0, extension({"dedup-id": "1"}))
    assert len(topic.published) == 1

    bench.broker.dirty[topic] = None
    await bench.rest()

    assert len(topic.published) == 0


async def test_topic_whose_folder_is_removed_while_all_threads_are_busy_is_synced(strict, disk):
    await settled(strict, publish(strict, b"t"))
    gate = threading.Event()
    names = [b"busy%d" % number for number in range(THREADS)]
    for name in names:
        await settled(strict, publish(strict, name))
        disk.gates[name.decode()] = gate
    busy = [publish(strict, name) for name in names]
    before = publish(strict, b"t", b"before")
    strict.write_batch.run()
    await eventually(lambda: len(disk.reached) == THREADS, "busy threads")
    store = store_of(strict.broker.topics["t"])
    shutil.rmtree(store.segments.folder)
    assert not store.appender.look_for_folder()
    after = publish(strict, b"t", b"after")
    strict.write_batch.run()
    gate.set()

    await settled(strict, *busy, before, after)

    assert [client.replies for client in busy] == [[OK]] * THREADS
    assert after.replies == [OK]
