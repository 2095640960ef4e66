"""Mutations of waiting: turns, fsyncs, checkpoints, and the removal of data after them."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation

_FSYNC: Final = "nsqd/server/fsync.py"
_UPKEEP: Final = "nsqd/server/upkeep.py"
_TESTS: Final = "tests/unit/nsqd/server"

WAITING: Final = (
    Mutation(
        "number-is-used-before-it-is-reserved",
        "nsqd/server/storing.py",
        "                if blocks and blocks[-1].next > reserved:\n",
        "                if blocks and blocks[-1].next < 0:\n",
        (f"{_TESTS}/test_storing.py",),
    ),
    Mutation(
        "what-could-not-be-written-is-delivered",
        "nsqd/server/storing.py",
        "        topic.abandon()\n",
        "",
        (f"{_TESTS}/test_storing.py",),
    ),
    Mutation(
        "strict-publisher-is-answered-before-the-fsync",
        "nsqd/server/turn.py",
        "                if not (waits and self._hold(connection, failed)):\n                    connection.answer()\n",
        "                connection.answer()\n",
        (f"{_TESTS}/test_turn.py",),
    ),
    Mutation(
        "turns-after-the-stop",
        "nsqd/server/turn.py",
        "        if not self._closed:\n            self._take()\n",
        "        self._take()\n",
        (f"{_TESTS}/test_turn.py",),
    ),
    Mutation(
        "error-of-an-fsync-is-not-told",
        _FSYNC,
        "        self._tell(run.tells, reason)\n",
        '        self._tell(run.tells, "")\n',
        (f"{_TESTS}/test_fsync.py",),
    ),
    Mutation(
        "folder-of-the-data-path-is-not-synced",
        _FSYNC,
        "        if run.error is None and run.job.new_folder:\n",
        "        if run.error is None and run.job.new_folder and self.count < 0:\n",
        (f"{_TESTS}/test_fsync.py",),
    ),
    Mutation(
        "store-whose-sync-failed-is-called-well",
        _FSYNC,
        "        self.failing[store] = topic\n        if topic.published is not None:\n",
        "        if topic.published is not None:\n",
        (f"{_TESTS}/test_fsync.py",),
    ),
    Mutation(
        "loop-waits-for-a-slow-disk",
        _FSYNC,
        "        return not self._running and size <= SMALL and count * self._recent_s < self._fast_s\n",
        "        return not self._running\n",
        (f"{_TESTS}/test_fsync.py",),
    ),
    Mutation(
        "fsyncs-share-the-threads-of-all-else",
        _FSYNC,
        "        future = self._loop.run_in_executor(self._pool, self._sync_files, run)\n",
        "        future = self._loop.run_in_executor(None, self._sync_files, run)\n",
        (f"{_TESTS}/test_fsync.py",),
    ),
    Mutation(
        "topic-is-deleted-while-a-thread-is-at-its-files",
        _UPKEEP,
        "            while care.jobs:\n                await asyncio.wait(care.jobs)\n",
        "",
        (f"{_TESTS}/test_upkeep.py", "kill --seeds 1 25"),
    ),
    Mutation(
        "what-is-let-go-of-is-a-loss-to-the-checkpoint",
        _UPKEEP,
        "            topic.log.kept_from = max(topic.log.kept_from, kept_from)\n",
        "            _ = kept_from\n",
        (f"{_TESTS}/test_upkeep.py", "kill --seeds 1 25", "power-cut --seeds 1 13"),
    ),
    Mutation(
        "files-go-before-a-checkpoint-covers-that",
        _UPKEEP,
        "            low_water = min(covered.covered_low_water, topic.unwanted_below())\n"
        "            store.drop_below(low_water, covered.covered_notes)\n",
        "            low_water = topic.unwanted_below()\n"
        "            store.drop_below(low_water, store.notes)\n",
        (f"{_TESTS}/test_upkeep.py", "kill --seeds 1 25", "power-cut --seeds 1 13"),
    ),
    Mutation(
        "last-checkpoints-are-not-synced",
        _UPKEEP,
        "        await asyncio.to_thread(self._data.disk.sync_all)\n",
        "",
        (f"{_TESTS}/test_upkeep.py", "power-cut --seeds 1 13"),
    ),
    Mutation(
        "layer-comes-round-a-transport-that-is-not-read",
        "nsqd/server/tcp.py",
        "        if long and not session.upgrading and self._transport is not None and not self._working:\n",
        "        if long and self._transport is not None and not self._working:\n",
        (f"{_TESTS}/test_tcp.py",),
    ),
)
