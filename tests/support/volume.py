"""The files and folders of a simulated disk, and how much of each would survive a power cut.

A file is a list of pages, immutable bytes that copies of a volume share. In addition to its present state a
volume knows the durable state and every step between the two: each version of a page, each size of a file,
each change of a folder. A power cut may leave any choice of those steps.
"""

import random
from collections.abc import Callable, Iterator
from typing import Final

PAGE: Final = 4096
SECTOR: Final = 512
ROOT: Final = 0

# One step that changes a volume: the name of a method of Volume, and its arguments.
Step = tuple[str, tuple[object, ...]]
Entries = dict[str, int]
# The contents of all reachable paths, for comparing volumes.
Tree = tuple[tuple[str, tuple[bytes, ...] | None], ...]


class File:
    """Pages and size, as they are now and as they are on the medium."""

    __slots__ = ("doubtful", "durable", "durable_size", "pages", "size", "sizes", "versions")

    def __init__(self) -> None:
        self.pages: list[bytes] = []
        self.size = 0
        self.durable: list[bytes] = []
        self.durable_size = 0
        # Since the last sync: page -> (time, content), and (time, size).
        self.versions: dict[int, list[tuple[int, bytes]]] = {}
        self.sizes: list[tuple[int, int]] = []
        # Pages whose sync failed: the system no longer counts them as dirty, so no later sync writes them.
        self.doubtful: set[int] = set()

    def copy(self) -> "File":
        other = File()
        other.pages, other.size = self.pages.copy(), self.size
        other.durable, other.durable_size = self.durable.copy(), self.durable_size
        other.versions = {page: versions.copy() for page, versions in self.versions.items()}
        other.sizes = self.sizes.copy()
        other.doubtful = self.doubtful.copy()
        return other

    def content(self) -> bytes:
        return b"".join(self.pages)

    def read(self, size: int, offset: int) -> bytes:
        first, last = offset // PAGE, (offset + size - 1) // PAGE
        data = b"".join(self.pages[first : last + 1])
        return data[offset - first * PAGE :][:size]

    def write(self, data: bytes, offset: int, time: int) -> None:
        if not data:
            return
        end = offset + len(data)
        if end > self.size:
            self._grow(end, time)
        at = 0
        while at < len(data):
            number, low = divmod(offset + at, PAGE)
            chunk = data[at : at + PAGE - low]
            old = self.pages[number]
            self._put(number, old[:low] + chunk + old[low + len(chunk) :], time)
            at += len(chunk)

    def set_size(self, size: int, time: int) -> None:
        if size > self.size:
            self._grow(size, time)
            return
        if size < self.size:
            for number in range(size // PAGE, len(self.pages)):
                self._put(number, self.pages[number][: max(0, size - number * PAGE)], time)
            del self.pages[-(-size // PAGE) :]
            self.size = size
            self.sizes.append((time, size))

    def sync(self) -> None:
        """Make everything durable except the doubtful pages."""
        pages = len(self.pages)
        del self.durable[pages:]
        for number in self.versions:
            if number < pages and number not in self.doubtful:
                self.durable += [b""] * (number + 1 - len(self.durable))
                self.durable[number] = self.pages[number]
        self.durable_size = self.size
        self.versions = {number: self.versions[number] for number in self.doubtful if number in self.versions}
        self.sizes = []

    def fail_sync(self) -> None:
        self.doubtful.update(self.versions)

    def after_power_cut(self, page: "Choice", size: "Choice", torn: random.Random | None) -> "File":
        """Return the file after *page* and *size* have chosen the steps that reached the medium."""
        left = File()
        chosen = size(self.durable_size, self.sizes)
        pages = self.durable.copy()
        for number, versions in self.versions.items():
            pages += [b""] * (number + 1 - len(pages))
            content = page(pages[number], versions)
            if torn is not None:
                content = _torn(content, pages[number], torn)
            pages[number] = content
        left.set_size(chosen, 0)
        for number in range(min(len(pages), len(left.pages))):
            room = len(left.pages[number])
            left.pages[number] = pages[number][:room].ljust(room, b"\0")
        left._settle()
        return left

    def _settle(self) -> None:
        self.durable, self.durable_size = self.pages.copy(), self.size
        self.versions, self.sizes, self.doubtful = {}, [], set()

    def _grow(self, size: int, time: int) -> None:
        if self.pages:
            last = len(self.pages) - 1
            self.pages[last] = self.pages[last].ljust(min(PAGE, size - last * PAGE), b"\0")
        while len(self.pages) * PAGE < size:
            self.pages.append(_ZEROS[: size - len(self.pages) * PAGE])
        self.size = size
        self.sizes.append((time, size))

    def _put(self, number: int, content: bytes, time: int) -> None:
        self.pages[number] = content
        self.versions.setdefault(number, []).append((time, content))
        self.doubtful.discard(number)


_ZEROS: Final = bytes(PAGE)

# Takes the durable value and the steps since, returns what reached the medium; for pages and sizes.
Choice = Callable[..., "int | bytes"]


class Change:
    """One change of folders that happens as a whole: one entry is removed, one is added, or both."""

    __slots__ = ("added", "removed", "time")

    def __init__(
        self, time: int, removed: tuple[int, str, int] | None, added: tuple[int, str, int] | None
    ) -> None:
        self.time = time
        # (folder, name, inode number)
        self.removed = removed
        self.added = added

    def touches(self, folder: int) -> bool:
        return folder in {change[0] for change in (self.removed, self.added) if change}

    def apply(self, folders: dict[int, Entries]) -> None:
        if self.removed:
            folder, name, number = self.removed
            if folders[folder].get(name) == number:
                del folders[folder][name]
        if self.added:
            folder, name, number = self.added
            folders[folder][name] = number


class Volume:
    """All files and folders by inode number; the root is 0."""

    __slots__ = ("durable", "files", "folders", "next_number", "pending", "time")

    def __init__(self) -> None:
        self.files: dict[int, File] = {}
        self.folders: dict[int, Entries] = {ROOT: {}}
        # The folders as they are on the medium, and the changes since.
        self.durable: dict[int, Entries] = {ROOT: {}}
        self.pending: list[Change] = []
        self.next_number = 1
        self.time = 0

    # --- steps ---

    def apply(self, step: Step) -> None:
        self.time += 1
        name, arguments = step
        getattr(self, name)(*arguments)

    def add_file(self, folder: int, name: str, number: int) -> None:
        self.files[number] = File()
        self._change(None, (folder, name, number))
        self.next_number = number + 1

    def add_folder(self, folder: int, name: str, number: int) -> None:
        self.folders[number] = {}
        self.durable[number] = {}
        self._change(None, (folder, name, number))
        self.next_number = number + 1

    def rename(self, folder: int, name: str, number: int, to_folder: int, to_name: str) -> None:
        self._change((folder, name, number), (to_folder, to_name, number))

    def unlink(self, folder: int, name: str, number: int) -> None:
        self._change((folder, name, number), None)

    def write(self, number: int, data: bytes, offset: int) -> None:
        self.files[number].write(data, offset, self.time)

    def set_size(self, number: int, size: int) -> None:
        self.files[number].set_size(size, self.time)

    def sync(self, number: int) -> None:
        self.files[number].sync()

    def fail_sync(self, number: int) -> None:
        self.files[number].fail_sync()

    def sync_folder(self, number: int) -> None:
        pending, self.pending = self.pending, []
        for change in pending:
            if change.touches(number):
                change.apply(self.durable)
            else:
                self.pending.append(change)

    def sync_all(self) -> None:
        for change in self.pending:
            change.apply(self.durable)
        self.pending = []
        for file in self.files.values():
            file.sync()

    def _change(self, removed: tuple[int, str, int] | None, added: tuple[int, str, int] | None) -> None:
        change = Change(self.time, removed, added)
        change.apply(self.folders)
        self.pending.append(change)

    # --- copies ---

    def copy(self) -> "Volume":
        """Return a copy with the same durable and present state, without files that are only held open."""
        other = Volume()
        reached = {number for _, number in self.walk()}
        other.files = {number: file.copy() for number, file in self.files.items() if number in reached}
        other.folders = {number: entries.copy() for number, entries in self.folders.items()}
        other.durable = {number: entries.copy() for number, entries in self.durable.items()}
        other.pending = self.pending.copy()
        # A power cut that drops one of the changes may bring back an unlinked file.
        for change in self.pending:
            for _, _, number in filter(None, (change.removed, change.added)):
                if number in self.files and number not in other.files:
                    other.files[number] = self.files[number].copy()
        for entries in self.durable.values():
            for number in entries.values():
                if number in self.files and number not in other.files:
                    other.files[number] = self.files[number].copy()
        other.next_number, other.time = self.next_number, self.time
        return other

    def after_power_cut(self, rng: random.Random) -> "Volume":
        """Return what a power cut leaves; *rng* draws one of the many possible results."""
        left = Volume()
        folders = {number: entries.copy() for number, entries in self.durable.items()}
        keep = _METADATA[rng.randrange(len(_METADATA))](rng, self)
        for change in self.pending:
            if keep(change.time):
                change.apply(folders)
        page, size, torn = _DATA[rng.randrange(len(_DATA))](rng, self)
        queue = [ROOT]
        while queue:
            number = queue.pop()
            entries = left.folders[number] = folders[number]
            left.durable[number] = entries.copy()
            for child in entries.values():
                if child in self.files:
                    left.files[child] = self.files[child].after_power_cut(page, size, torn)
                else:
                    queue.append(child)
        left.next_number, left.time = self.next_number, self.time
        return left

    def walk(self, start: int = ROOT, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield every path and inode number below a folder."""
        for name, number in self.folders[start].items():
            path = f"{prefix}/{name}"
            yield path, number
            if number in self.folders:
                yield from self.walk(number, path)

    def tree(self) -> Tree:
        """Return everything that can be read, for comparing volumes: paths, and the pages of files."""
        return tuple(
            (path, tuple(self.files[number].pages) if number in self.files else None)
            for path, number in sorted(self.walk())
        )


# --- the ways of a power cut ---


def _none(before, _steps):
    return before


def _all(before, steps):
    return steps[-1][1] if steps else before


def _until(time: int) -> Choice:
    def choose(before, steps):
        for when, value in steps:
            if when > time:
                break
            before = value
        return before

    return choose


def _any(rng: random.Random) -> Choice:
    def choose(before, steps):
        at = rng.randrange(-1, len(steps))
        return before if at < 0 else steps[at][1]

    return choose


def _all_or_none(rng: random.Random) -> Choice:
    return lambda before, steps: _all(before, steps) if rng.random() < 0.5 else before


def _some_time(rng: random.Random, volume: Volume) -> int:
    times = [change.time for change in volume.pending]
    for file in volume.files.values():
        times += [time for versions in file.versions.values() for time, _ in versions]
    return rng.choice(times) if times else volume.time


def _torn(new: bytes, old: bytes, rng: random.Random) -> bytes:
    """Return a page of which only some sectors were written."""
    old = old.ljust(len(new), b"\0")
    if rng.random() < 0.5:
        cut = rng.randrange(0, len(new) // SECTOR + 1) * SECTOR
        return new[:cut] + old[cut:]
    return b"".join(
        (new if rng.random() < 0.5 else old)[at : at + SECTOR] for at in range(0, len(new), SECTOR)
    )


_DATA: Final = (
    lambda _rng, _volume: (_none, _none, None),
    lambda _rng, _volume: (_all, _all, None),
    lambda _rng, _volume: (_none, _all, None),  # sizes grew without their data
    lambda _rng, _volume: (_all, _none, None),
    lambda rng, volume: (until := _until(_some_time(rng, volume)), until, None),
    lambda rng, volume: (until := _until(_some_time(rng, volume)), until, rng),
    lambda rng, _volume: (_any(rng), _any(rng), None),
    lambda rng, _volume: (_any(rng), _all, None),
    lambda rng, _volume: (_any(rng), _any(rng), rng),
    lambda rng, _volume: (_all_or_none(rng), _all, None),
)

_METADATA: Final = (
    lambda _rng, _volume: lambda _time: False,
    lambda _rng, _volume: lambda _time: True,
    lambda rng, volume: _some_time(rng, volume).__ge__,
    lambda rng, _volume: lambda _time: rng.random() < 0.5,
    lambda rng, volume: _some_time(rng, volume).__ne__,
)
