"""The files of one topic: opened under a free name, rotated, and moved to their final place when finished."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nsqclient.wire.durations import Duration
from nsqcore.process.logs import Log
from nsqtools.nsq_to_file.names import TopicNames, revised
from nsqtools.nsq_to_file.record_file import RecordFile, content_of, sync_folder
from nsqtools.nsq_to_file.rotation import Rotation


class Clocks:
    """The two clocks of an archive."""

    def local(self) -> datetime:
        """Local time with its zone, for the names of files."""
        return datetime.now().astimezone()

    def passed(self) -> Duration:
        """Nanoseconds of a monotonic clock, for the age of files."""
        return time.monotonic_ns()


class TopicLog:
    """The log, with the topic and channel in front of each line."""

    def __init__(self, log: Log, topic: str, channel: str) -> None:
        self._log = log
        self._name = f"[{topic}/{channel}] ".replace("%", "%%")

    def info(self, text: str, *values: object) -> None:
        self._log.info(self._name + text, *values)

    def warning(self, text: str, *values: object) -> None:
        self._log.warning(self._name + text, *values)


@dataclass(frozen=True, slots=True)
class ArchiveLayout:
    """Where files are and how they are made; the folders are absolute."""

    output_dir: Path
    work_dir: Path
    rotation: Rotation
    gzip_level: int | None = None
    skip_empty: bool = False

    @property
    def moves(self) -> bool:
        """Whether files are written in one folder and moved to another when they are finished."""
        return self.work_dir != self.output_dir

    @property
    def on_different_devices(self) -> bool:
        """Whether files cannot be moved, because the folders are, or will be, on different devices."""
        return _device(self.work_dir) != _device(self.output_dir)

    @property
    def exclusive(self) -> bool:
        """Whether an existing file is left alone. Otherwise the next run appends to it."""
        return self.gzip_level is not None or self.rotation.interval > 0


def _device(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return folder.stat().st_dev


class Archive:
    """Writes one topic; all methods block. An OSError must end the process: writes after it are not safe."""

    def __init__(self, layout: ArchiveLayout, names: TopicNames, clocks: Clocks, log: TopicLog) -> None:
        self._layout = layout
        self._names = names
        self._clocks = clocks
        self._log = log
        self._file: RecordFile | None = None
        self._name = ""
        self._revision = 0
        self._opened_at: Duration = 0
        # Whether records were added since the last sync, and whether some were removed with their file.
        self._unsynced = False
        self._lost = False

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def add(self, bodies: Iterable[bytes]) -> bool:
        """Write records; returns whether a file was opened for one of them."""
        # The records arrived together, so the clocks are read once for all of them.
        file, cluster_http = self._file, self._needs_another()
        if file is None or cluster_http:
            file = self._open_next()
        for body in bodies:
            if self._layout.rotation.too_big(file.size):
                self._log.info("%s %s", file.path, self._layout.rotation.size_reason(file.size))
                file = self._open_next()
                cluster_http = True
            file.add(body)
        file.flush()
        self._unsynced = True
        return cluster_http

    def sync(self) -> bool:
        """Return whether all records since the last sync are on disk; False if their file was removed."""
        file = self._file
        if file is not None:
            if not file.is_removed:
                file.sync()
            if file.is_removed:
                self._drop(file)
        safe, self._lost, self._unsynced = not self._lost, False, False
        return safe

    def rotate(self) -> None:
        """Rotate if it is time, even if no message arrived."""
        if not self._needs_another():
            return
        if self._layout.skip_empty:
            self.close()
        else:
            self._open_next()

    def close(self) -> None:
        """Finish the file; the next record opens another one."""
        file = self._file
        if file is None:
            return
        if file.is_removed:
            self._drop(file)
            return
        self._file = None
        try:
            file.finish()
            if self._layout.moves:
                # While it is open it is locked, so that no other run treats it as a leftover.
                self._move(file.path, self._name, self._revision)
            else:
                self._log.info("closed %s", file.path)
        finally:
            os.close(file.fd)

    def recover(self) -> None:
        """Finish files that a killed run left in the work folder, because they hold finished messages."""
        if not self._layout.moves:
            return
        pattern = self._names.pattern()
        for path in sorted(_files_below(self._layout.work_dir)):
            relative = str(path.relative_to(self._layout.work_dir))
            if pattern.fullmatch(relative):
                self._recover(path, relative)

    def _drop(self, file: RecordFile) -> None:
        """Leave a file that was removed; the next record opens one of the same name."""
        self._log.warning("%s was removed while it was written", file.path)
        self._file = None
        self._revision -= 1
        self._lost = self._unsynced
        os.close(file.fd)

    # --- opening

    def _needs_another(self) -> bool:
        if self._file is None:
            return True
        reason = self._layout.rotation.reason(
            self._name,
            self._names.at(self._clocks.local()),
            self._clocks.passed() - self._opened_at,
            self._file.size,
        )
        if reason is not None:
            self._log.info("%s %s", self._file.path, reason)
        return reason is not None

    def _open_next(self) -> RecordFile:
        self.close()
        name = self._names.at(self._clocks.local())
        self._revision = self._revision + 1 if name == self._name else 0
        self._name = name
        while (file := self._try_open(revised(name, self._revision))) is None:
            self._revision += 1
        self._file = file
        self._opened_at = self._clocks.passed()
        return file

    def _try_open(self, name: str) -> RecordFile | None:
        layout = self._layout
        path, final = layout.work_dir / name, layout.output_dir / name
        make_folder(path.parent)
        if layout.moves:
            make_folder(final.parent)
            if final.exists():
                self._log.warning("output file already exists: %s", final)
                return None
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | (os.O_EXCL if layout.exclusive else 0)
        try:
            fd = os.open(path, flags, 0o666)
        except FileExistsError:
            self._log.warning("working file already exists: %s", path)
            return None
        size = os.fstat(fd).st_size
        if layout.rotation.too_big(size):
            os.close(fd)
            self._log.info("%s %s", path, layout.rotation.size_reason(size))
            return None
        if layout.moves:
            # Shows to a later run that this file is in use and not a leftover.
            fcntl.flock(fd, fcntl.LOCK_SH)
            if not _is_at(fd, path):  # the later run has already moved it
                os.close(fd)
                return None
        self._log.info("opening %s", path)
        return RecordFile(path, fd, layout.gzip_level)

    # --- moving

    def _move(self, path: Path, name: str, revision: int) -> None:
        """Give a finished file its final name, or the next free one; nothing is ever overwritten."""
        final = self._layout.output_dir / revised(name, revision)
        self._log.info("moving finished file %s to %s", path, final)
        while not _moved(path, final):
            self._log.warning("destination file already exists: %s", final)
            revision += 1
            final = self._layout.output_dir / revised(name, revision)

    def _recover(self, path: Path, relative: str) -> None:
        try:
            file = path.open("r+b")
        except FileNotFoundError:
            return  # another process has finished it
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # another process is writing it
            if not _is_at(file.fileno(), path):
                return  # as above
            # The run that left it may have had another -gzip, and names need not tell.
            gzip = self._layout.gzip_level is not None
            content = content_of(path, gzip=gzip)
            whole, size = content.complete, os.fstat(file.fileno()).st_size
            if not whole:
                path.unlink()
                self._log.info("removed %s of an earlier run: none of its records is complete", path)
                return
            if whole < size:
                # These records were not synced, so their messages were not finished and are delivered again.
                file.truncate(whole)
                os.fsync(file.fileno())
            self._log.warning("%s was left by an earlier run, %d of %d bytes are complete", path, whole, size)
            if content.gzip != gzip:
                found, wanted = ("gzip", "lines") if content.gzip else ("lines", "gzip")
                self._log.warning("%s holds %s, though this run writes %s", path, found, wanted)
            final = self._layout.output_dir / relative
            make_folder(final.parent)
            attempt = 0
            while not _moved(path, final):
                attempt += 1
                final = self._layout.output_dir / _beside(relative, attempt)
            self._log.info("moved %s to %s", path, final)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, with the mode of the original, and sync their names to disk."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):  # made by another process
        folder.mkdir(0o770)
    sync_folder(folder.parent)


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _moved(path: Path, final: Path) -> bool:
    try:
        os.link(path, final)  # unlike a rename it fails when the target exists
    except FileExistsError:
        if not path.samefile(final):  # if the same, a run was killed between the two steps
            return False
        if path.name == final.name and path.parent.samefile(final.parent):
            return True  # there is only one name: the format leads out of both folders to the same path
    sync_folder(final.parent)
    path.unlink()
    sync_folder(path.parent)
    return True


def _beside(relative: str, attempt: int) -> str:
    """Another name for a recovered file, whose name already contains a revision."""
    head, dot, tail = relative.rpartition(".")
    return f"{head}.recovered-{attempt}{dot}{tail}" if dot else f"{relative}.recovered-{attempt}"


def _files_below(folder: Path) -> Iterator[Path]:
    for base, _, names in os.walk(folder):
        for name in names:
            yield Path(base, name)
