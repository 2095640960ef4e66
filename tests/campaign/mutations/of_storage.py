"""Mutations of `nsqd/storage` and of the server's use of it."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation
from tests.campaign.mutations.of_log import CUTS, KILLS

_SLOTS: Final = "nsqd/storage/slots.py"
_RESERVATION: Final = "nsqd/storage/reservation.py"
_DATA_PATH: Final = "nsqd/storage/data_path.py"

STORAGE: Final = (
    Mutation(
        "checkpoint-of-another-topic-is-believed",
        "nsqd/storage/checkpoint.py",
        "if topic_name and header",
        "if not topic_name and header",
        ("tests/unit/nsqd/storage/test_slots.py",),
    ),
    Mutation(
        "reservation-not-synced",
        _RESERVATION,
        """\
serial % 2 * _SLOT_BYTES)
                self._disk.sync(fd)
""",
        """\
serial % 2 * _SLOT_BYTES)
""",
        (CUTS, "tests/unit/nsqd/storage"),
    ),
    Mutation(
        "reservation-has-one-slot",
        _RESERVATION,
        """\
serial % 2 * _SLOT_BYTES)
""",
        """\
0)
""",
        (CUTS, "tests/unit/nsqd/storage"),
    ),
    Mutation(
        "numbers-of-the-reservation-are-used-again",
        _DATA_PATH,
        """\
        floor = max([reserved, clock, *ends, *checkpointed]) + jump
""",
        """\
        floor = max([clock, *ends, *checkpointed]) + jump
""",
        (KILLS, CUTS),
    ),
    Mutation(
        "topic-has-channels-of-an-earlier-one-of-its-name",
        _DATA_PATH,
        " and _is_of(listed, found):",
        ":",
        ("tests/unit/nsqd/storage/test_data_path.py",),
    ),
    Mutation(
        "start-gives-the-log-another-name",
        "nsqd/log/appender.py",
        "            self.log_id = self._segments[-1].header.log_id\n",
        "            pass\n",
        ("tests/unit/nsqd/log/test_appender.py",),
    ),
    Mutation(
        "compacted-file-names-another-log",
        "nsqd/log/compaction.py",
        "new_salt(first.header.log_id)",
        "new_salt(1)",
        ("tests/unit/nsqd/log/test_compaction.py",),
    ),
    Mutation(
        "deleted-topic-removed-before-its-name-is-gone",
        _DATA_PATH,
        """\
                self.deleted_unsynced.append(deleted)
""",
        """\
                self.deleted.append(deleted)
""",
        ("tests/unit/nsqd/server/test_fsync.py", CUTS),
    ),
    Mutation(
        "due-times-of-the-log-are-not-owed",
        "nsqd/storage/restoring.py",
        """\
    due_ns = topic.wall.engine_ns(stored.due_ns) if stored.due_ns else 0
""",
        """\
    due_ns = 0
""",
        (KILLS,),
    ),
    Mutation(
        "checkpoint-not-synced",
        _SLOTS,
        """\
            disk.replace(self._path, content, durable=self.slot.durable)
""",
        """\
            disk.replace(self._path, content, durable=False)
""",
        (CUTS,),
    ),
    Mutation(
        "checkpoint-folder-not-synced",
        _SLOTS,
        """\
                disk.sync_folder(self._path.parent)
""",
        """\
                pass
""",
        (CUTS,),
    ),
    Mutation(
        "added-checkpoint-not-synced",
        _SLOTS,
        """\
            if self.slot.durable:
                disk.sync(fd)
""",
        "",
        (CUTS,),
    ),
    Mutation(
        "files-go-when-one-checkpoint-agrees",
        _SLOTS,
        "        return min(slot.low_water",
        "        return max(slot.low_water",
        ("tests/unit/nsqd/storage/test_slots.py",),
    ),
    Mutation(
        "notes-go-when-one-checkpoint-has-them",
        _SLOTS,
        "        return min(slot.notes",
        "        return max(slot.notes",
        ("tests/unit/nsqd/storage/test_slots.py",),
    ),
    Mutation(
        "newest-durable-checkpoint-is-written-over",
        _SLOTS,
        """\
        if newest_durable >= 0 and serials[place] == newest_durable:
""",
        """\
        if newest_durable >= 0 and serials[place] != newest_durable:
""",
        ("tests/unit/nsqd/storage/test_slots.py", "tests/unit/nsqd/storage/test_data_path.py"),
    ),
    Mutation(
        "added-checkpoint-forgets-what-the-other-file-took",
        _SLOTS,
        """\
                if one is not None:
                    one.add(pending, change)
""",
        """\
                if one is not None and one is self._chains[0]:
                    one.add(pending, change)
""",
        (KILLS,),
    ),
    Mutation(
        "runs-of-skipped-numbers-are-not-in-a-checkpoint",
        "nsqd/storage/checkpoint.py",
        "[list(run) for run in pending.finished.runs]",
        "[]",
        ("tests/unit/nsqd/storage",),
    ),
    Mutation(
        "due-times-are-not-in-an-added-checkpoint",
        "nsqd/storage/checkpoint.py",
        """\
        [journal.dues for journal in change.journals],
""",
        """\
        [],
""",
        (KILLS,),
    ),
    Mutation(
        "channel-made-again-has-what-the-other-finished",
        "nsqd/storage/checkpoint.py",
        "before if before is not None and before.generation == generation else BacklogState()",
        "before if before is not None else BacklogState()",
        (KILLS, "tests/unit/nsqd/storage"),
    ),
    Mutation(
        "a-clock-that-was-set-moves-what-is-deferred",
        "nsqd/storage/slots.py",
        "        if abs(offset_ns - self._offset_ns) > STEP_NS:\n",
        "        if False:\n",
        ("tests/unit/nsqd/storage/test_slots.py",),
    ),
)
