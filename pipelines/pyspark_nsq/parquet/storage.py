"""Where the files of an archive go: a folder of this machine, or an object store that ``pyarrow.fs`` knows.

A file is written elsewhere first, and put in place when it is complete: in a folder by a rename, in an object
store by a copy that the store makes of an upload. An upload to the place itself could do harm when it fails:
Arrow completes what is closed early, and another attempt may have put the same file there.
"""

import io
import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final, Protocol

import pyarrow as pa
from pyarrow import fs

from pyspark_nsq.source.errors import SourceError

# Incomplete files. Readers of a folder skip names that begin with an underscore.
UNFINISHED: Final = "_unfinished"
# Stores that have no folders and no rename. They copy a file without sending it back and forth.
_COPIES: Final = frozenset(("s3", "gcs", "abfs"))
# S3 copies no more in one request. The files of an archive are far smaller, unless a batch has no limit.
_MAX_COPIED_BYTES: Final = 5_000_000_000
_PIECE_BYTES: Final = 4 << 20


class Storage(Protocol):
    """A place for files; names have slashes between folders."""

    def unfinished(self, name: str) -> Path:
        """Return a path on this machine at which to write the file *name* first."""

    def finish(self, unfinished: Path, name: str) -> str:
        """Put a complete file in its place; return its address there."""

    def read(self, name: str) -> str | None:
        """Return the text of a small file; None if it does not exist."""

    def write(self, name: str, text: str) -> None: ...

    def tidy(self) -> None:
        """Remove the unfinished files of killed tasks."""

    def close(self) -> None: ...


def is_uri(output: str) -> bool:
    return "://" in output


def open_storage(output: str) -> Storage:
    """Open the place that *output* names. Raises SourceError."""
    return ObjectStorage(output) if is_uri(output) else FolderStorage(Path(output))


class FolderStorage:
    """A folder that all executors see."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def unfinished(self, name: str) -> Path:
        # Another executor may be writing another attempt at the same file.
        unfinished = self._folder / UNFINISHED / f"{name.rpartition('/')[2]}.{uuid.uuid4().hex}"
        make_folder(unfinished.parent)
        return unfinished

    def finish(self, unfinished: Path, name: str) -> str:
        sync(unfinished)
        place = self._folder / name
        make_folder(place.parent)
        unfinished.replace(place)
        sync(place.parent)
        return str(place)

    def read(self, name: str) -> str | None:
        path = self._folder / name
        return path.read_text() if path.exists() else None

    def write(self, name: str, text: str) -> None:
        unfinished = self.unfinished(name)
        unfinished.write_text(text)
        self.finish(unfinished, name)

    def tidy(self) -> None:
        shutil.rmtree(self._folder / UNFINISHED, ignore_errors=True)

    def close(self) -> None:
        pass


class ObjectStorage:
    """An object store, HDFS, or anything else with a URI that ``pyarrow.fs`` understands."""

    def __init__(self, uri: str) -> None:
        try:
            self._files, self._root = fs.FileSystem.from_uri(uri)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise SourceError(f"the output {uri} cannot be used: {error}") from error
        self._uri = uri
        self._here: TemporaryDirectory[str] | None = None

    def unfinished(self, name: str) -> Path:
        if self._here is None:
            self._here = TemporaryDirectory(prefix="nsq-archive-")
        return Path(self._here.name, f"{name.rpartition('/')[2]}.{uuid.uuid4().hex}")

    def finish(self, unfinished: Path, name: str) -> str:
        with unfinished.open("rb") as source:
            place = self._upload(source, name, unfinished.stat().st_size)
        unfinished.unlink()
        return place

    def _upload(self, source: BinaryIO, name: str, size: int) -> str:
        place = f"{self._root}/{name}"
        upload = f"{self._root}/{UNFINISHED}/{name.rpartition('/')[2]}.{uuid.uuid4().hex}"
        copies = self._files.type_name in _COPIES
        if copies and size > _MAX_COPIED_BYTES:
            upload = place
        try:
            if not copies:
                self._files.create_dir(upload.rpartition("/")[0])
                self._files.create_dir(place.rpartition("/")[0])
            with self._files.open_output_stream(upload) as target:
                while piece := source.read(_PIECE_BYTES):
                    target.write(piece)
            if upload != place:
                (self._files.copy_file if copies else self._files.move)(upload, place)
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{place} cannot be written: {error}") from error
        finally:
            if upload != place:
                with suppress(pa.ArrowException, OSError):
                    self._files.delete_file(upload)
        return f"{self._files.type_name}://{place.lstrip('/')}"

    def read(self, name: str) -> str | None:
        place = f"{self._root}/{name}"
        try:
            if self._files.get_file_info(place).type is fs.FileType.NotFound:
                return None
            with self._files.open_input_stream(place) as stream:
                return bytes(stream.read()).decode()
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{place} cannot be read: {error}") from error

    def write(self, name: str, text: str) -> None:
        content = text.encode()
        self._upload(io.BytesIO(content), name, len(content))

    def tidy(self) -> None:
        with suppress(pa.ArrowException, OSError):
            self._files.delete_dir_contents(f"{self._root}/{UNFINISHED}", missing_dir_ok=True)

    def close(self) -> None:
        if self._here is not None:
            self._here.cleanup()
            self._here = None


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents durably."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync(path: Path) -> None:
    """Sync a file, or the names in a folder, to disk, so that they survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
