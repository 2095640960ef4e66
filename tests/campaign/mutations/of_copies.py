"""Mutations of `nsqd/replication`: how copies are made, and when a copy counts."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation

_FOLDER: Final = "nsqd/replication/copy_folder.py"
_SOUND: Final = "nsqd/replication/sound.py"
_KEEPER: Final = "nsqd/replication/keeper.py"
_HOME: Final = "nsqd/replication/home.py"
_LINK: Final = "nsqd/replication/home_link.py"
_STREAMING: Final = "nsqd/replication/streaming.py"
_OUT: Final = "nsqd/replication/outgoing.py"
_STREAMS: Final = "nsqd/replication/streams.py"
_WAITS: Final = "nsqd/replication/waits.py"
_TESTS: Final = ("tests/unit/nsqd/replication",)

COPIES: Final = (
    Mutation(
        "keeper-counts-from-its-welcome-on",
        "nsqd/server/replication/connections.py",
        "link.is_streamed_to and all(",
        "link.keeper is not None and all(",
        ("tests/unit/nsqd/server/replication/test_connections.py",),
    ),
    Mutation(
        "appointment-without-topics-is-unknown",
        "nsqd/replication/copied_topics.py",
        "        self._copies.begin(self._identity, begin.appointment)\n",
        "",
        ("tests/unit/nsqd/replication/test_copied_topics.py",),
    ),
    Mutation(
        "copy-is-not-checked",
        _SOUND,
        "        if append is None or not append.matches(view[append.start - offset : append.end - offset], salt):\n",
        "        if append is None:\n",
        _TESTS,
    ),
    Mutation(
        "copy-goes-on-anywhere",
        _FOLDER,
        "        elif found.segment is None or found.sealed or found.size != offset:\n",
        "        elif found.segment is None or found.sealed:\n",
        _TESTS,
    ),
    Mutation(
        "copy-is-believed-after-a-power-cut",
        _SOUND,
        "            if not append.matches(data, segment.header.salt):\n                break\n",
        "",
        _TESTS,
    ),
    Mutation(
        "unsound-end-of-a-copy-stays",
        _FOLDER,
        "                self._disk.truncate(path, segment.size)\n",
        "                pass\n",
        _TESTS,
    ),
    Mutation(
        "last-checkpoint-of-a-copy-not-synced",
        _FOLDER,
        "        only = second not in self.files or second in self.dirty\n",
        "        only = False\n",
        _TESTS,
    ),
    Mutation(
        "copy-acknowledged-as-durable-when-written",
        _KEEPER,
        "        now = (self.written, self.synced)\n",
        "        now = (self.written, self.written)\n",
        _TESTS,
    ),
    Mutation(
        "failed-sync-of-a-copy-is-forgotten",
        _KEEPER,
        "            self.refuse(Refuse.DISK, _disk_says(error))\n        elif self._begin",
        "            pass\n        elif self._begin",
        _TESTS,
    ),
    Mutation(
        "copy-that-has-more-is-written-over",
        _STREAMS,
        "                if one.salt != segment.header.salt or one.size > segment.size:\n",
        "                if one.salt != segment.header.salt:\n",
        _TESTS,
    ),
    Mutation(
        "file-that-was-let-go-of-is-no-conflict-whatever-the-copy-has-of-it",
        _STREAMS,
        "                if one.size > left.size:\n",
        "                if False:\n",
        ("tests/unit/nsqd/replication/test_streams.py",),
    ),
    Mutation(
        "keeper-has-what-was-only-said",
        _LINK,
        "        return stream.linked and stream.filled and self.out.synced >= stream.stated\n",
        "        return stream.linked and stream.filled\n",
        ("tests/unit/nsqd/replication/test_home_link.py",),
    ),
    Mutation(
        "former-keeper-is-told-at-once",
        _LINK,
        "        if not all(link.is_filled for link in today):\n",
        "        if False:\n",
        ("tests/unit/nsqd/replication/test_home_link.py",),
    ),
    Mutation(
        "copy-that-lacks-an-append-is-whole",
        _STREAMS,
        "        self.linked = self.filled = False\n",
        "        self.linked = False\n",
        ("tests/unit/nsqd/replication/test_home_link.py",),
    ),
    Mutation(
        "whole-copy-waits-for-the-keepers-own-fsync",
        _STREAMING,
        "        self._out.want_durable()\n",
        "",
        ("tests/unit/nsqd/replication/test_home_link.py",),
    ),
    Mutation(
        "whole-copy-is-durable-without-its-names",
        _KEEPER,
        "                self._to_settle.add(self._named.folder(frame.folder))\n",
        "                pass\n",
        ("tests/unit/nsqd/replication/test_copy_jobs.py",),
    ),
    Mutation(
        "file-of-a-former-life-is-no-conflict-whatever-is-in-it",
        _STREAMS,
        "                if without([(one.first, one.next_seq)], needless):\n",
        "                if False:\n",
        ("tests/unit/nsqd/replication/test_streams.py",),
    ),
    Mutation(
        "file-of-the-same-size-has-all-that-the-copy-has",
        _STREAMS,
        "            if one.next_seq:\n",
        "            if one.next_seq and segment is None:\n",
        ("tests/unit/nsqd/replication/test_streams.py", "tests/unit/nsqd/replication/test_home_link.py"),
    ),
    Mutation(
        "what-a-home-had-and-can-read-no-more-is-settled",
        "nsqd/engine/facts.py",
        "    return without(had(topic), without(owed_by_any(topic), readable(topic, stored)))\n",
        "    return had(topic)\n",
        ("tests/unit/nsqd/engine/test_facts.py",),
    ),
    Mutation(
        "compacted-file-holds-the-end-that-was-lost",
        "nsqd/engine/facts.py",
        "    return within_all(merged(stored), had(topic))\n",
        "    return merged(stored)\n",
        (
            "tests/unit/nsqd/engine/test_facts.py",
            "tests/unit/nsqd/replication/test_homecoming.py",
            "tests/unit/nsqd/replication/test_carrier.py",
        ),
    ),
    Mutation(
        "files-the-home-has-lost-are-removed-from-the-copy",
        _LINK,
        "        left = [one.number for one in streams if one.conflicts(home.gone_of(one.log), home.settled)]\n",
        "        left: list[int] = []\n",
        _TESTS,
    ),
    Mutation(
        "copy-counts-before-a-checkpoint-tells-of-what-was-before",
        _STREAMS,
        "        return end >= self.needs_end and notes >= self.needs_notes\n",
        "        return True\n",
        ("tests/unit/nsqd/replication/test_streams.py",),
    ),
    Mutation(
        "copy-counts-from-the-beginning",
        _STREAMING,
        "        if stream.is_empty:\n            self._link(stream)\n",
        "        if True:\n            self._link(stream)\n",
        _TESTS,
    ),
    Mutation(
        "the-log-does-not-go-on-in-another-file-for-a-new-keeper",
        _STREAMS,
        "        self.log.end_segment()\n",
        "",
        ("tests/unit/nsqd/replication/test_streaming.py",),
    ),
    Mutation(
        "files-go-from-the-copy-before-what-replaces-them-is-there",
        _STREAMS,
        "        below = min(missing, default=1 << 62)\n",
        "        below = 1 << 62\n",
        ("tests/unit/nsqd/replication/test_streams.py",),
    ),
    Mutation(
        "nobody-syncs-a-copy-for-a-strict-home",
        _OUT,
        "        self._sync_wanted = self._sync_wanted or durable\n",
        "",
        _TESTS,
    ),
    Mutation(
        "publishers-hang-on-a-keeper-that-hangs",
        _OUT,
        "                self.stalled = True\n                self._waits.lose()\n",
        "                self.stalled = True\n",
        _TESTS,
    ),
    Mutation(
        "publishers-are-told-before-the-keeper-has-it",
        _WAITS,
        "            if position > (synced if durable else written):\n                return\n",
        "",
        _TESTS,
    ),
    Mutation(
        "deleted-topics-are-not-remembered-for-keepers-that-are-away",
        _HOME,
        "            self.untold[known.name] = self.keepers\n",
        "            self.untold[known.name] = set()\n",
        _TESTS,
    ),
    Mutation(
        "an-append-at-which-one-keeper-is-given-up-misses-the-next",
        _HOME,
        "            link.appended(self._log, segment, offset, pieces)\n",
        "            link.appended(self._log, segment, offset, pieces)\n            if link not in self._home.links:\n                break\n",
        _TESTS,
    ),
)
