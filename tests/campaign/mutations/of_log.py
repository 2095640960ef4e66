"""Mutations of `nsqd/log`: writing, syncing, recovery, compaction."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation

CUTS: Final = "power-cut --seeds 1 13"
KILLS: Final = "kill --seeds 1 25"
FAILED: Final = "failed-call --seeds 3 13"
SECOND: Final = "second-crash --seeds 1 7"
BITS: Final = "bits --seeds 1 5 --every 11"
SYNCING: Final = "tests/unit/nsqd/log/test_syncing.py"
CALLS: Final = "calls --seeds 1 4 --every 7"

_APPENDER: Final = "nsqd/log/appender.py"
_TOPIC_LOG: Final = "nsqd/storage/topic_log.py"
_APPENDING: Final = "nsqd/log/segment_writer.py"
_SYNC: Final = "nsqd/log/syncing.py"
_CLEANER: Final = "nsqd/log/cleaner.py"
_COMPACTION: Final = "nsqd/log/compaction.py"
_FINDING: Final = "nsqd/log/finding.py"
_RECOVERY: Final = "nsqd/log/recovery.py"
_INDEX: Final = "nsqd/log/segment_index.py"
_LAYOUT: Final = "nsqd/log/layout.py"

LOG: Final = (
    # --- writing and syncing ---
    Mutation(
        "active-segment-not-synced",
        _SYNC,
        "for writer in (*self.sealed, self.active):",
        "for writer in self.sealed:",
        (CUTS,),
    ),
    Mutation(
        "sealed-segments-not-synced",
        _SYNC,
        "for writer in (*self.sealed, self.active):",
        "for writer in (self.active,):",
        (CUTS,),
    ),
    Mutation(
        "topic-folder-not-synced",
        _SYNC,
        """\
            disk.sync_folder(self.folder)
""",
        """\
            pass
""",
        (CUTS,),
    ),
    Mutation(
        "failed-sync-is-tried-again",
        _APPENDER,
        """\
            self.fail(error)
""",
        """\
            self._syncing.running = None
            self.unsynced += job.unsynced
""",
        (SYNCING,),
    ),
    Mutation(
        "log-is-appended-to-after-a-failed-sync",
        _APPENDER,
        """\
        if self.failed:
""",
        """\
        if False:
""",
        (SYNCING,),
    ),
    Mutation(
        "checkpoint-covers-one-message-too-many",
        _TOPIC_LOG,
        """\
            next_seq, segments.notes, segments.synced, segments.end, segments.synced_notes
""",
        """\
            next_seq + 1, segments.notes, segments.synced, segments.end, segments.synced_notes
""",
        (KILLS,),
    ),
    Mutation(
        "checkpoint-covers-one-note-too-many",
        _TOPIC_LOG,
        """\
            next_seq, segments.notes, segments.synced, segments.end, segments.synced_notes
""",
        """\
            next_seq, segments.notes + 1, segments.synced, segments.end, segments.synced_notes
""",
        (KILLS,),
    ),
    Mutation(
        "checkpoint-says-that-all-is-synced",
        _TOPIC_LOG,
        """\
            next_seq, segments.notes, segments.synced, segments.end, segments.synced_notes
""",
        """\
            next_seq, segments.notes, segments.end, segments.end, segments.synced_notes
""",
        (SECOND, "tests/unit/nsqd/log"),
    ),
    Mutation(
        "checkpoint-says-that-all-notes-are-synced",
        _TOPIC_LOG,
        """\
            next_seq, segments.notes, segments.synced, segments.end, segments.synced_notes
""",
        """\
            next_seq, segments.notes, segments.synced, segments.end, segments.notes
""",
        ("tests/unit/nsqd/log/test_syncing.py", SECOND),
    ),
    Mutation(
        "notes-that-a-checkpoint-knows-are-not-synced-at-a-start",
        _FINDING,
        """\
segment.last_note > mark.synced_notes:
""",
        """\
segment.last_note > mark.notes:
""",
        ("tests/unit/nsqd/log/test_finding.py", SECOND),
    ),
    Mutation(
        "segments-dropped-with-notes-that-no-checkpoint-has",
        _CLEANER,
        """\
            if knows_notes(segment.last_note, notes) and not small:
""",
        """\
            if not small:
""",
        ("tests/unit/nsqd/log/test_cleaner.py",),
    ),
    Mutation(
        "failed-append-goes-on-in-its-file",
        _APPENDER,
        """\
            if not writer.truncate():
""",
        """\
            if not segment.pages:
""",
        (
            FAILED,
            CALLS,
            "tests/unit/nsqd/log",
        ),
    ),
    Mutation(
        "file-that-somebody-removed-is-called-durable",
        _APPENDER,
        """\
                self._syncing.sealed.append(writer)
""",
        """\
                pass
""",
        (SYNCING,),
    ),
    Mutation(
        "start-owes-nothing-of-a-first-file-that-is-gone",
        _FINDING,
        "max(before[-1].next if before else 0, mark.next) or follows",
        "max(before[-1].next, mark.next) if before else follows",
        ("tests/unit/nsqd/log/test_finding.py",),
    ),
    # --- compaction ---
    Mutation(
        "file-that-is-gone-stops-all-compaction",
        _COMPACTION,
        "            raise Spoiled(segment) from None\n",
        "            raise\n",
        ("tests/unit/nsqd/log/test_compaction.py",),
    ),
    Mutation(
        "compaction-not-synced",
        _COMPACTION,
        """\
                disk.sync(writer.fd)
""",
        "",
        (CUTS,),
    ),
    Mutation(
        "compaction-folder-not-synced",
        _COMPACTION,
        """\
            disk.sync_folder(new.folder)
""",
        "",
        (CUTS,),
    ),
    Mutation(
        "compaction-is-never-given-up",
        _COMPACTION,
        """\
            self._decided = not self._given_up
            return self._decided
""",
        """\
            self._decided = True
            return True
""",
        ("tests/unit/nsqd/log/test_compaction.py", KILLS),
    ),
    Mutation(
        "compaction-forgets-due-times",
        _COMPACTION,
        "due_ns=append.due_ns",
        "due_ns=0",
        ("tests/unit/nsqd/log/test_compaction.py",),
    ),
    Mutation(
        "compaction-forgets-headers",
        _COMPACTION,
        "has_headers=append.has_headers)",
        "has_headers=False)",
        ("tests/unit/nsqd/log/test_headers_stored.py",),
    ),
    Mutation(
        "pages-mix-messages-with-headers-and-without",
        "nsqd/log/pages.py",
        "        if self._run and append.has_headers != self._run_has_headers:\n            self._end_run()\n",
        "",
        ("tests/unit/nsqd/log/test_headers_stored.py",),
    ),
    Mutation(
        "compaction-takes-notes-that-no-checkpoint-has",
        _CLEANER,
        """\
            and knows_notes(one.last_note, covered_notes)
        }
""",
        """\
        }
""",
        ("tests/unit/nsqd/log/test_compaction.py", KILLS),
    ),
    Mutation(
        "channel-from-the-earliest-does-not-stop-a-compaction",
        _CLEANER,
        "if compaction is None or compaction.give_up() or not set(compaction.old)",
        "if compaction is None or not set(compaction.old)",
        ("tests/unit/nsqd/log/test_compaction.py", KILLS),
    ),
    Mutation(
        "compacted-file-does-not-speak-for-what-is-missing",
        _COMPACTION,
        ", ends=old[-1].next)\n        new = ",
        ")\n        new = ",
        (KILLS, CUTS),
    ),
    # --- recovery ---
    Mutation(
        "start-does-not-sync-what-it-found",
        _FINDING,
        """\
            _sync(disk, segment)
            to_sync = True
""",
        """\
            to_sync = True
""",
        (SECOND,),
    ),
    Mutation(
        "start-does-not-sync-the-folder",
        _FINDING,
        """\
    if to_sync:
        disk.sync_folder(folder)
        disk.sync_folder(folder.parent)
""",
        "",
        (SECOND,),
    ),
    Mutation(
        "file-in-the-place-of-another-is-taken-for-it",
        _FINDING,
        """\
        if place not in in_order:
""",
        """\
        if False:
""",
        ("tests/unit/nsqd/log/test_finding.py",),
    ),
    Mutation(
        "file-that-begins-within-the-one-before-it-is-taken",
        _FINDING,
        "if found.segments and empty.first <",
        "if False and empty.first <",
        ("tests/unit/nsqd/log/test_finding.py",),
    ),
    Mutation(
        "both-of-two-files-that-are-one-are-taken",
        _FINDING,
        "bisect_left if segment.header.salt in salts else bisect_right",
        "bisect_right",
        ("tests/unit/nsqd/log/test_finding.py",),
    ),
    Mutation(
        "index-tells-of-what-was-refused",
        _RECOVERY,
        "min(mark.next, mark.synced, limit)",
        "min(mark.next, mark.synced)",
        ("tests/unit/nsqd/log/test_recovery.py",),
    ),
    Mutation(
        "what-was-refused-behind-damage-is-owed",
        _RECOVERY,
        "self._lose(min(append.first, self._limit))",
        "self._lose(append.first)",
        ("tests/unit/nsqd/log/test_recovery.py",),
    ),
    Mutation(
        "start-takes-what-was-refused",
        _FINDING,
        """\
    return (behind[0].header.follows or behind[0].first) if behind else NO_LIMIT
""",
        """\
    return NO_LIMIT
""",
        ("tests/unit/nsqd/log/test_finding.py", FAILED),
    ),
    Mutation(
        "start-keeps-the-older-generation",
        _FINDING,
        """\
            replaced.append(older)
        newest[number] = segment
""",
        """\
            replaced.append(segment)
            continue
        newest[number] = segment
""",
        (KILLS, CUTS),
    ),
    Mutation(
        "replaced-files-go-before-the-name-of-the-new-one-is-durable",
        _FINDING,
        """\
    if replaced:
        disk.sync_folder(folder)
""",
        "",
        ("tests/unit/nsqd/log/test_compaction.py", SECOND),
    ),
    Mutation(
        "torn-data-is-not-noticed",
        _RECOVERY,
        """\
        return not append.matches(self._read(append.start, append.end), self._salt)
""",
        """\
        return False
""",
        ("tests/unit/nsqd/log/test_recovery.py", CUTS),
    ),
    Mutation(
        "zeros-are-not-taken-for-torn",
        _RECOVERY,
        """\
            or self._was_never_written(place.start, place.end, least=1 if unknown else _ZEROS_BYTES)
""",
        "",
        ("tests/unit/nsqd/log/test_recovery.py", CUTS),
    ),
    Mutation(
        "index-hides-what-no-checkpoint-has",
        _RECOVERY,
        """\
            if segment.next <= min(mark.next, mark.synced, limit) and segment.last_note <= mark.notes:
""",
        """\
            if True:
""",
        (KILLS,),
    ),
    Mutation(
        "deferral-not-told-by-the-log",
        _RECOVERY,
        """\
                self._owe(append.first, append.next, append.due_ns, size)
""",
        """\
                self._owe(append.first, append.next, 0, size)
""",
        (KILLS,),
    ),
    Mutation(
        "checkpoint-and-log-owe-the-same",
        _RECOVERY,
        """\
        first = max(first, self._mark.next)
""",
        "",
        (KILLS, "tests/unit/nsqd/log"),
    ),
    Mutation(
        "empty-file-keeps-the-node-from-starting",
        _RECOVERY,
        """\
            if _is_empty(disk, fd):
""",
        """\
            if not start:
""",
        ("tests/unit/nsqd/log/test_recovery.py", CUTS),
    ),
    Mutation(
        "index-of-another-state-of-the-file-is-believed",
        _INDEX,
        """\
    if (magic, version, salt, size) != (_MAGIC, _VERSION, segment.header.salt, file_size):
""",
        """\
    if (magic, version) != (_MAGIC, _VERSION):
""",
        (CUTS, "tests/unit/nsqd/log"),
    ),
    Mutation(
        "index-is-not-checked",
        _INDEX,
        """\
    if len(body) < _HEAD.size or xxh3_64_intdigest(body) != _CHECK.unpack_from(content, len(body))[0]:
""",
        """\
    if len(body) < _HEAD.size:
""",
        (BITS, "tests/unit/nsqd/log"),
    ),
    Mutation(
        "start-does-not-owe-what-is-missing",
        _FINDING,
        """\
            found.tail_records += _missing(found.segments, segment, mark)
""",
        "",
        ("tests/unit/nsqd/log/test_finding.py",),
    ),
    Mutation(
        "start-keeps-files-that-a-compacted-one-replaces",
        _FINDING,
        """\
        if segment.first < spoken_for:
            # It was put together with others in the one before it.
            replaced.append(segment)
            continue
""",
        "",
        ("tests/unit/nsqd/log/test_finding.py", KILLS, CUTS),
    ),
    # --- reading ---
    Mutation(
        "damaged-data-is-given",
        "nsqd/log/pages.py",
        """\
        if not append.matches(data, self._salt):
""",
        """\
        if False:
""",
        (BITS, "tests/unit/nsqd/log"),
    ),
    Mutation(
        "damaged-data-is-given-message-by-message",
        "nsqd/log/pages.py",
        """\
        if not append.matches(piece, salt):
            break
""",
        "",
        (BITS, "tests/unit/nsqd/log", "tests/property/test_reading.py"),
    ),
    Mutation(
        "file-that-cannot-be-read-is-a-gap",
        "nsqd/log/pages.py",
        """\
    except FileNotFoundError:
        return [Gap(first, last, Why.REMOVED)]
""",
        """\
    except OSError:
        return [Gap(first, last, Why.REMOVED)]
""",
        ("reads --seeds 1 6 --every 1", "tests/unit/nsqd/log"),
    ),
    Mutation(
        "header-of-an-append-is-not-checked",
        _LAYOUT,
        """\
    if xxh3_64_intdigest(data[at:seal], salt) != _CHECK.unpack_from(data, seal)[0]:
        return None
    if flags""",
        "    if flags",
        (BITS, "tests/unit/nsqd/log"),
    ),
    Mutation(
        "every-file-has-the-same-salt",
        _APPENDING,
        """\
    return log_id << LOG_ID_SHIFT | int.from_bytes(os.urandom(4), "little")
""",
        """\
    return 4711
""",
        (CUTS, KILLS, "tests/unit/nsqd/log"),
    ),
    Mutation(
        "second-copy-of-the-file-header-is-not-used",
        _LAYOUT,
        """\
        if len(data) < at + _COPY_BYTES:
            break
""",
        """\
        if at or len(data) < at + _COPY_BYTES:
            break
""",
        (BITS, "tests/unit/nsqd/log"),
    ),
)
