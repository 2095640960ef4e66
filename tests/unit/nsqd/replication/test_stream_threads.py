"""The stream on real disks, with its jobs in threads."""

import random
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from nsqd.log.disk import Disk
from nsqd.replication.log_stream import ReplicaSettings
from tests.unit.nsqd.replication.stream_pair import StreamPair

_S = 1_000_000_000


class ThreadedPair(StreamPair):
    """Runs the jobs of both sides in threads, while frames are moved."""

    def __init__(self, path, pool, *, strict):
        for name in ("primary", "replica"):
            (path / name).mkdir()
        super().__init__(
            ReplicaSettings(replicas=1, strict=strict),
            (Disk(), Disk()),
            (path / "primary", path / "replica"),
        )
        self.pool = pool
        self.running: list[tuple[Future, Callable]] = []
        # Each step waits for the jobs that it has begun.
        self.waits = False

    def work(self) -> bool:
        end = self.end
        for job in self.reads.take():
            future = self.pool.submit(job.run, self.origin.disk)
            self.running.append((future, lambda error, job=job: job.ended(error, 0)))
        for job in end.jobs():
            self.running.append((self.pool.submit(job.run, self.copies.disk), partial(end.ended, job)))
        return self.harvest()

    def harvest(self) -> bool:
        """Hand back the jobs that have ended."""
        done = [one for one in self.running if self.waits or one[0].done()]
        for one in done:
            future, ended = one
            self.running.remove(one)
            error = future.exception()
            assert error is None or isinstance(error, OSError), error
            ended(error)
        return bool(done or self.running)

    def cut(self, keep=0):
        super().cut(keep)
        # Jobs of the connection before end while the next one negotiates.
        self.harvest()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_copy_equals_log_with_jobs_in_threads(tmp_path, pool, seed, strict):
    rng = random.Random(seed)
    pair = ThreadedPair(tmp_path, pool, strict=strict)

    def publish():
        pair.origin.publish(b"%d" % rng.randrange(1 << 40) * rng.randint(1, 60), name=rng.choice("tuv"))

    def delete():
        name = rng.choice("tuv")
        if name in pair.origin.broker.topics:
            pair.origin.delete(name)

    def tick():
        pair.now += rng.choice([0, _S // 10, _S])
        if pair.end is not None:
            pair.end.tick()

    def at_origin(what, *names):
        return lambda: getattr(pair.origin, what)(*map(rng.choice, names))

    events = [publish] * 14 + [pair.step] * 20 + [tick] * 3 + [delete]
    events += [pair.connect, at_origin("checkpoint"), at_origin("sync"), at_origin("compact", "tuv")]
    events += [at_origin("channel", "ab", "tuv"), at_origin("empty", "tuv")]
    pair.connect()
    for _ in range(400):
        rng.choice(events)()
        if pair.stream is None:
            # A file may vanish under a job of the earlier connection: its topic was deleted since then.
            assert pair.reason in ("cut", "the replica's disk: no such file or directory")
    pair.waits = True
    pair.connect()
    pair.settle()

    assert pair.reason == ""
    assert pair.stream.is_caught_up
    for name in pair.origin.broker.topics:
        assert pair.copied(name) == pair.origin.files(name)
