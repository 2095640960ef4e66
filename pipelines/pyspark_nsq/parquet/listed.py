"""Which Parquet files of a folder count: those that its table lists, or else all that are finished.

The folder has other files as well: those from before a compaction, which readers of an older version still
need, and those of attempts that failed. They have messages that listed files have too, or no footer.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from pyspark_nsq.parquet.layout import SUFFIX
from pyspark_nsq.source.errors import SourceError

_DELTA: Final = "_delta_log"
_SPARK: Final = "_spark_metadata"


def files_of(folder: Path) -> list[Path]:
    """Return the files of an archive, or of a day or an hour of it, in the order of folders and names.

    Raises SourceError.
    """
    table = _archive_of(folder, _DELTA)
    if table is not None:
        return sorted(path for path in _of_delta(table) if path.is_relative_to(folder))
    if _archive_of(folder, _SPARK) is not None:
        raise SourceError(
            f"{folder} was written by a query of Spark, whose failed attempts have files there too; "
            'let Spark read it: spark.read.parquet(...).select("body").write.format("nsq")'
        )
    return sorted(path for path in folder.rglob(f"*{SUFFIX}") if not _is_hidden(path, folder))


def is_table(folder: Path) -> bool:
    return _archive_of(folder, _DELTA) is not None


def _archive_of(folder: Path, notes: str) -> Path | None:
    """Return the archive with these notes that *folder* is, or is a part of, such as ``hour=09``."""
    for one in (folder, *folder.parents):
        if (one / notes).is_dir():
            return one
        if "=" not in one.name:
            break
    return None


def _of_delta(root: Path) -> Iterator[Path]:
    if find_spec("deltalake") is None:
        raise SourceError(
            f"{root} is a Delta table, and deltalake is not installed; "
            "pip install 'pyspark-nsq[delta]' brings it"
        )
    # Imported here, because only tables need it.
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        listed = DeltaTable(str(root.resolve())).file_uris()
    except DeltaError as error:
        raise SourceError(f"the Delta table {root} cannot be read: {error}") from error
    for path in listed:
        yield root / Path(unquote(path)).relative_to(root.resolve())


def _is_hidden(path: Path, folder: Path) -> bool:
    """Whether readers of Parquet skip the file, because it is not finished."""
    return any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)
