"""Synced records are in the files, whole and once, whatever happens to a run of nsq_to_file at any moment."""

import gzip
import io
import os
import shutil
import tempfile
import zlib
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from nsqclient.wire.durations import SECOND
from nsqtools.nsq_to_file.archive import Archive, ArchiveLayout
from nsqtools.nsq_to_file.names import Naming
from nsqtools.nsq_to_file.rotation import Rotation


class Quiet:
    def info(self, *_: object) -> None: ...

    warning = info


class ArchiveMachine(RuleBasedStateMachine):
    """Runs that write, sync, rotate, are hung up, are killed at any moment, and start again."""

    @initialize(
        level=st.sampled_from([None, 1]),
        work=st.booleans(),
        rotation=st.sampled_from([Rotation(), Rotation(size=150), Rotation(interval=40 * SECOND)]),
    )
    def begin(self, level, work, rotation):
        # In memory where possible, because there are thousands of syncs.
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        out = self.folder / "out"
        self.layout = ArchiveLayout(out, self.folder / "work" if work else out, rotation, level)
        revisions = self.layout.moves or self.layout.exclusive or rotation.size > 0
        self.names = Naming("<TOPIC><REV>.<DATETIME>", "%H%M", "h", 1, level is not None, revisions)
        self.seconds = self.count = 0
        self.durable: list[bytes] = []
        self.pending: list[bytes] = []
        self.start()

    def local(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def passed(self) -> int:
        return self.seconds * SECOND

    def start(self) -> None:
        self.archive = Archive(self.layout, self.names.of("t"), self, Quiet())
        self.layout.work_dir.mkdir(exist_ok=True)
        self.archive.recover()

    @rule(sizes=st.lists(st.integers(0, 200), min_size=1, max_size=5))
    def write(self, sizes):
        bodies = []
        for size in sizes:
            self.count += 1
            bodies.append(b"%d-" % self.count + b"x" * size)
        # As the writer does: opening a file makes earlier records durable, and the new ones are synced.
        if self.archive.add(bodies):
            self.pending += bodies
            self.sync()
        else:
            self.pending += bodies

    @rule()
    def sync(self):
        self.archive.sync()
        self.durable += self.pending
        self.pending = []

    @rule(seconds=st.integers(1, 90))
    def wait(self, seconds):
        self.seconds += seconds

    @rule()
    def tick(self):
        self.archive.rotate()
        self.sync()

    @rule()
    def hang_up(self):
        self.sync()
        self.archive.close()

    @rule(torn=st.binary(max_size=30))
    def kill_within_a_write(self, torn):
        if self.archive.is_open:
            file = self.archive._file
            os.write(file.fd, torn.replace(b"\n", b""))
            os.close(file.fd)
        self.pending = []
        self.start()

    @precondition(lambda self: not self.archive.is_open)
    @invariant()
    def what_was_synced_is_there(self):
        if not self.layout.output_dir.exists():
            assert not self.durable
            return
        lines: Counter[bytes] = Counter()
        for path in self.layout.output_dir.iterdir():
            data = path.read_bytes()
            lines.update((complete(data) if self.layout.gzip_level else data).split(b"\n"))
        assert {body: lines[body] for body in self.durable} == dict.fromkeys(self.durable, 1)

    def teardown(self):
        self.archive.close()
        self.what_was_synced_is_there()
        shutil.rmtree(self.folder)


def complete(data: bytes) -> bytes:
    """The content that a gzip reader gets before a torn end."""
    read = bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        try:
            while piece := file.read1():
                read += piece
        except (EOFError, OSError, zlib.error):
            pass
    return bytes(read)


def test_synced_records_survive():
    limits = settings(max_examples=100, stateful_step_count=20, deadline=None)
    run_state_machine_as_test(ArchiveMachine, settings=limits)
