"""A disk in memory that records all operations, can lose power, and can fail any call.

Every call goes through :meth:`SimulatedDisk._call`, where it gets a number and may fail; a method of Disk
that makes several system calls makes several calls here. Changes of the disk are kept as steps, so that a
:class:`History` can give the disk at any moment.
"""

import errno
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NoReturn

from nsqd.log.disk import CannotOpen, Disk
from tests.support.volume import PAGE, ROOT, Step, Volume

UNLIMITED: Final = 1 << 62


@dataclass(slots=True)
class Call:
    """One call, as recorded in a trace."""

    number: int
    operation: str
    path: str
    detail: int = 0
    error: str = ""

    def __str__(self) -> str:
        failed = f" -> {self.error}" if self.error else ""
        return f"{self.number:5} {self.operation} {self.path} {self.detail or ''}{failed}".rstrip()


@dataclass(slots=True)
class Fault:
    """Calls that fail: the one with that number, or those of an operation and a path with wildcards."""

    error: int
    operation: str = "*"
    path: str = "*"
    call: int | None = None
    # How often the fault happens; None means until it is removed.
    times: int | None = 1
    # Number of bytes that are written before a write fails, or returned by a read if ``error`` is 0.
    partial: int = 0

    def strikes(self, call: Call) -> bool:
        if self.times == 0:
            return False
        if self.call is not None and self.call != call.number:
            return False
        return fnmatchcase(call.operation, self.operation) and fnmatchcase(call.path, self.path)


@dataclass(slots=True)
class _Open:
    number: int
    path: str
    readable: bool
    writable: bool
    appends: bool


class SimulatedDisk(Disk):
    """The simulated disk. *folder* exists from the start and is durable."""

    def __init__(
        self, folder: Path | None = None, *, volume: Volume | None = None, capacity: int = UNLIMITED
    ) -> None:
        """*capacity* is in bytes and is used in whole pages."""
        self.volume = volume or Volume()
        self.steps: list[Step] = []
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        # Number of calls that have failed so far.
        self.failed = 0
        self.capacity = capacity
        # The free bytes that it reports, whatever is really free.
        self.free_bytes = UNLIMITED
        self.max_open = UNLIMITED
        # Called with each call before it is carried out.
        self.before_call: Callable[[Call], None] = lambda _call: None
        self._open: dict[int, _Open] = {}
        self._next_fd = 1000
        if folder is not None:
            for made in (*reversed(folder.parents), folder):
                if self._find(made) is None:
                    self.make_folder(made)
            self.volume.sync_all()
        self.calls.clear()
        self.steps.clear()
        self._base = self.volume.copy()

    # --- for tests ---

    def fail(
        self,
        error: int,
        operation: str = "*",
        path: str = "*",
        *,
        call: int | None = None,
        times: int | None = 1,
        partial: int = 0,
    ) -> Fault:
        """Let calls fail from now on; see :class:`Fault`."""
        fault = Fault(error, operation, path, call, times, partial)
        self.faults.append(fault)
        return fault

    def heal(self) -> None:
        """Remove all faults."""
        self.faults.clear()
        self.capacity = UNLIMITED
        self.max_open = UNLIMITED

    def history(self) -> "History":
        """Return everything that happened so far, to be replayed."""
        return History(self._base, self.steps.copy())

    def killed(self) -> "SimulatedDisk":
        """Return the disk after kill -9 of the process: everything written is there, durable or not."""
        return SimulatedDisk(volume=self.volume.copy())

    def after_power_cut(self, rng: random.Random) -> "SimulatedDisk":
        """Return one of the many possible disks after a power cut."""
        return SimulatedDisk(volume=self.volume.after_power_cut(rng))

    def copied(self, path: Path, target: Path) -> None:
        """Copy a folder as ``cp -r`` does, to new inodes; the copy is durable immediately."""
        self.make_folder(target)
        for name in self.names(path):
            if self._is_folder(path / name):
                self.copied(path / name, target / name)
            else:
                fd = self.open_write(target / name)
                self.write_at(fd, self.read_file(path / name), 0)
                self.close(fd)
        self.sync_all()

    def forget_descriptors(self) -> None:
        """Close everything that is open, as the end of a process does."""
        self._open.clear()

    @property
    def open_paths(self) -> list[str]:
        """Return the open paths, for finding descriptors that leak."""
        return sorted(entry.path for entry in self._open.values())

    def leaks(self) -> list[str]:
        """Return files that are open without need: for writing, removed since then, or opened more than once.

        A file may be kept open for the next read.
        """
        live = {number for _, number in self.volume.walk()}
        numbers = [entry.number for entry in self._open.values()]
        return sorted(
            entry.path
            for entry in self._open.values()
            if entry.writable or entry.number not in live or numbers.count(entry.number) > 1
        )

    @property
    def used(self) -> int:
        """Return the bytes in use, in whole pages; open files count even if they are unlinked."""
        live = {number for _, number in self.volume.walk()}
        live.update(entry.number for entry in self._open.values())
        return PAGE * sum(len(file.pages) for number, file in self.volume.files.items() if number in live)

    def free(self, path: Path) -> tuple[int, int]:
        self._call("free", path)
        return self.free_bytes, UNLIMITED

    # --- files ---

    def create(self, path: Path) -> int:
        self._call("create", path)
        folder, name = self._parent(path)
        if name in self.volume.folders[folder]:
            _fail(errno.EEXIST, path)
        return self._opened(self._make_file(folder, name), path, writable=True, appends=True)

    def open_append(self, path: Path) -> int:
        self._call("open_append", path)
        number = self._find(path)
        if number is None:
            _fail(errno.ENOENT, path)
        return self._opened(number, path, writable=True, appends=True)

    def append(self, fd: int, pieces: list[bytes]) -> None:
        entry = self._entry(fd, writable=True)
        data = b"".join(pieces)
        offset = self.volume.files[entry.number].size if entry.appends else 0
        self._write("append", entry, data, offset)

    def open_read(self, path: Path) -> int:
        self._call("open_read", path)
        number = self._find(path)
        if number is None:
            _fail(errno.ENOENT, path)
        return self._opened(number, path, readable=True)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        entry = self._entry(fd, readable=True)
        fault = self._call("read", entry.path, size)
        if entry.number in self.volume.folders:
            _fail(errno.EISDIR, entry.path)
        data = self.volume.files[entry.number].read(size, offset) if size else b""
        return data if fault is None else data[: fault.partial]

    def read_ahead(self, fd: int, size: int, offset: int) -> None:
        self._entry(fd, readable=True)

    def size(self, fd: int) -> int:
        entry = self._entry(fd)
        self._call("size", entry.path)
        # The size of a folder has no meaning.
        return PAGE if entry.number in self.volume.folders else self.volume.files[entry.number].size

    def has_name(self, fd: int) -> bool:
        entry = self._entry(fd)
        return self._find(Path(entry.path)) == entry.number

    def open_write(self, path: Path) -> int:
        self._call("open_write", path)
        number = self._find(path)
        if number is None:
            number = self._make_file(*self._parent(path))
        elif number in self.volume.folders:
            _fail(errno.EISDIR, path)
        return self._opened(number, path, readable=True, writable=True)

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        if not data:
            return
        entry = self._entry(fd, writable=True)
        # As in Linux, a descriptor that appends ignores the offset.
        self._write(
            "write_at", entry, data, self.volume.files[entry.number].size if entry.appends else offset
        )

    def truncate(self, path: Path, size: int) -> None:
        self._call("truncate", path, size)
        number = self._find(path)
        if number is None:
            _fail(errno.ENOENT, path)
        if number in self.volume.folders:
            _fail(errno.EISDIR, path)
        self._grow(number, size)
        self._step("set_size", number, size)
        self._sync(number, path)

    def truncate_open(self, fd: int, size: int) -> None:
        entry = self._entry(fd, writable=True)
        self._call("truncate_open", entry.path, size)
        self._grow(entry.number, size)
        self._step("set_size", entry.number, size)

    def allocate(self, fd: int, size: int) -> None:
        if size <= 0:
            _fail(errno.EINVAL, str(fd))
        entry = self._entry(fd, writable=True)
        self._call("allocate", entry.path, size)
        if size > self.volume.files[entry.number].size:
            self._grow(entry.number, size)
            self._step("set_size", entry.number, size)

    def sync(self, fd: int) -> None:
        entry = self._entry(fd)
        self._sync(entry.number, entry.path)

    def close(self, fd: int) -> None:
        entry = self._open.pop(fd, None)
        if entry is None:
            _fail(errno.EBADF, "")
        # The descriptor is closed even if this fails, as on Linux.
        self._call("close", entry.path)

    def replace(self, path: Path, content: bytes, *, durable: bool) -> None:
        temporary = path.with_name(path.name + ".tmp")
        fd = self.open_write(temporary)
        try:
            try:
                entry = self._open[fd]
                if self.volume.files[entry.number].size:
                    self._step("set_size", entry.number, 0)
                self._write("write_at", entry, content, 0)
                if durable:
                    self.sync(fd)
            finally:
                self.close(fd)
            self.rename(temporary, path)
        except OSError:
            self._unlink(temporary)
            raise

    def remove(self, path: Path) -> None:
        self._call("remove", path)
        self._unlink(path)

    def _unlink(self, path: Path) -> None:
        try:
            folder, name = self._parent(path)
        except FileNotFoundError:
            return
        number = self.volume.folders[folder].get(name)
        if number is None:
            return
        if number in self.volume.folders:
            _fail(errno.EISDIR, path)
        self._step("unlink", folder, name, number)

    def rename(self, path: Path, target: Path) -> None:
        self._call("rename", f"{path} {target}")
        folder, name = self._parent(path)
        to_folder, to_name = self._parent(target)
        number = self.volume.folders[folder].get(name)
        if number is None:
            _fail(errno.ENOENT, path)
        there = self.volume.folders[to_folder].get(to_name)
        if there == number:
            return
        if path in target.parents:
            _fail(errno.EINVAL, path)
        if there is not None:
            self._check_replaceable(there, path, target, is_folder=number in self.volume.folders)
        self._step("rename", folder, name, number, to_folder, to_name)

    def identity(self, path: Path) -> int:
        self._call("identity", path)
        number = self._find(path)
        if number is None:
            _fail(errno.ENOENT, path)
        return number

    def sync_all(self) -> None:
        call = Call(len(self.calls), "sync_all", "")
        self.calls.append(call)
        self.before_call(call)
        # sync(2) reports no errors.
        self._step("sync_all")

    # --- folders ---

    def names(self, folder: Path) -> list[str]:
        self._call("names", folder)
        return sorted(self.volume.folders[self._folder(folder)])

    def make_folder(self, path: Path) -> None:
        self._call("make_folder", path)
        if path == path.parent:
            return
        folder, name = self._parent(path)
        if name in self.volume.folders[folder]:
            _fail(errno.EEXIST, path)
        self._step("add_folder", folder, name, self.volume.next_number)

    def remove_folder(self, path: Path) -> None:
        try:
            if self._find(path) is None:
                return
        except NotADirectoryError:
            return
        for name in self.names(path):
            if self._is_folder(path / name):
                self.remove_folder(path / name)
            else:
                self.remove(path / name)
        self._call("remove_folder", path)
        folder, name = self._parent(path)
        self._step("unlink", folder, name, self.volume.folders[folder][name])

    def sync_folder(self, path: Path) -> None:
        self._call("sync_folder", path)
        if len(self._open) >= self.max_open:
            raise CannotOpen(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        self._step("sync_folder", self._folder(path))

    # --- inside ---

    def _call(self, operation: str, path: Path | str, detail: int = 0) -> Fault | None:
        """Count a call. Raises the error of its fault; a fault without an error is returned."""
        fault = self._strike(operation, path, detail)
        if fault is not None and fault.error:
            _fail(fault.error, path)
        return fault

    def _strike(self, operation: str, path: Path | str, detail: int = 0) -> Fault | None:
        call = Call(len(self.calls), operation, str(path), detail)
        self.calls.append(call)
        self.before_call(call)
        for fault in self.faults:
            if fault.strikes(call):
                if fault.times is not None:
                    fault.times -= 1
                call.error = errno.errorcode.get(fault.error, "short")
                self.failed += 1
                return fault
        return None

    def _step(self, name: str, *arguments: object) -> None:
        step = (name, arguments)
        self.steps.append(step)
        self.volume.apply(step)

    def _write(self, operation: str, entry: _Open, data: bytes, offset: int) -> None:
        fault = self._strike(operation, entry.path, len(data))
        if fault is not None:
            if fault.partial:
                self._step("write", entry.number, data[: fault.partial], offset)
            _fail(fault.error, entry.path)
        try:
            self._grow(entry.number, offset + len(data))
        except OSError:
            # The bytes that fit are written, as on a real disk that becomes full.
            self.calls[-1].error = "ENOSPC"
            pages = len(self.volume.files[entry.number].pages)
            fits = (pages + max(0, self.capacity - self.used) // PAGE) * PAGE - offset
            if fits > 0:
                self._step("write", entry.number, data[:fits], offset)
            raise
        if data:
            self._step("write", entry.number, data, offset)

    def _grow(self, number: int, size: int) -> None:
        more = -(-size // PAGE) - len(self.volume.files[number].pages)
        if more > 0 and self.capacity < UNLIMITED and self.used + more * PAGE > self.capacity:
            _fail(errno.ENOSPC, "")

    def _sync(self, number: int, path: Path | str) -> None:
        try:
            self._call("sync", path)
        except OSError:
            if number in self.volume.files:
                self._step("fail_sync", number)
            raise
        self._step("sync_folder" if number in self.volume.folders else "sync", number)

    def _make_file(self, folder: int, name: str) -> int:
        number = self.volume.next_number
        if len(self._open) >= self.max_open:
            _fail(errno.EMFILE, name)
        self._step("add_file", folder, name, number)
        return number

    def _opened(
        self,
        number: int,
        path: Path,
        *,
        readable: bool = False,
        writable: bool = False,
        appends: bool = False,
    ) -> int:
        if len(self._open) >= self.max_open:
            _fail(errno.EMFILE, path)
        self._next_fd += 1
        self._open[self._next_fd] = _Open(number, str(path), readable, writable, appends)
        return self._next_fd

    def _entry(self, fd: int, *, readable: bool = False, writable: bool = False) -> _Open:
        entry = self._open.get(fd)
        if entry is None or (readable and not entry.readable) or (writable and not entry.writable):
            _fail(errno.EBADF, entry.path if entry else str(fd))
        return entry

    def _check_replaceable(self, there: int, path: Path, target: Path, *, is_folder: bool) -> None:
        if there not in self.volume.folders:
            if is_folder:
                _fail(errno.ENOTDIR, target)
        elif target in path.parents:
            _fail(errno.ENOTEMPTY, target)
        elif not is_folder:
            _fail(errno.EISDIR, target)
        elif self.volume.folders[there]:
            _fail(errno.ENOTEMPTY, target)

    def _find(self, path: Path) -> int | None:
        number = ROOT
        for name in path.parts[1:]:
            entries = self.volume.folders.get(number)
            if entries is None:
                _fail(errno.ENOTDIR, path)
            found = entries.get(name)
            if found is None:
                return None
            number = found
        return number

    def _folder(self, path: Path) -> int:
        number = self._find(path)
        if number is None:
            _fail(errno.ENOENT, path)
        if number not in self.volume.folders:
            _fail(errno.ENOTDIR, path)
        return number

    def _parent(self, path: Path) -> tuple[int, str]:
        return self._folder(path.parent), path.name

    def _is_folder(self, path: Path) -> bool:
        return self._find(path) in self.volume.folders


class History:
    """The steps of a disk from its beginning, for replaying them one by one."""

    def __init__(self, base: Volume, steps: list[Step]) -> None:
        self._base = base
        self.steps = steps

    def __iter__(self) -> Iterator[tuple[int, Volume]]:
        """Yield the number of steps done and the disk at that moment, which is always the same object."""
        volume = self._base.copy()
        yield 0, volume
        for number, step in enumerate(self.steps, 1):
            volume.apply(step)
            yield number, volume


def _fail(number: int, path: Path | str) -> NoReturn:
    raise OSError(number, os.strerror(number), str(path))
