"""The schema of ``bodyFormat=json`` if the user gives none: inferred once, and stored in a file.

A restarted query must have the same columns as before, even after new kinds of messages. So the inferred
schema is stored in a file next to the checkpoint. Only the user changes or removes that file.
"""

import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import fs
from pyspark.sql.types import StructType

from nsqclient.wire.node_error import NodeError
from pyspark_nsq.source.cluster import FoundLog, NewChannel, TopicCluster
from pyspark_nsq.source.errors import OptionError, SourceError
from pyspark_nsq.source.http import NodeConnection
from pyspark_nsq.source.inferred import infer
from pyspark_nsq.source.offsets import Offset, topic_of
from pyspark_nsq.source.options import SourceOptions
from pyspark_nsq.source.reasons import explain

# Of each log so many of the oldest and of the newest messages are examined, up to so many bytes each.
_MESSAGES: Final = 500
_BYTES: Final = 8 << 20


def schema_of(options: SourceOptions) -> StructType:
    """Return the stored schema, or infer one from the messages and store it. Raises SourceError."""
    file = _SchemaFile(options) if options.schema_location else None
    kept = file.read() if file else None
    if kept is not None:
        return kept
    found = infer(_bodies(options), headers=options.include_headers)
    if found is None:
        raise SourceError(
            f"topic {options.described} has no message with a JSON object, from which the columns could be "
            "seen; give a schema, or begin when there is one"
        )
    if file:
        file.write(found)
    return found


class _SchemaFile:
    """A file on this machine, or in a store that ``pyarrow.fs`` knows."""

    def __init__(self, options: SourceOptions) -> None:
        self._topics = options.described
        self._location = options.schema_location
        where = self._location if "://" in self._location else str(Path(self._location).absolute())
        try:
            self._files, self._path = fs.FileSystem.from_uri(where)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise OptionError(f"option schemaLocation is {self._location!r}: {error}") from None

    def read(self) -> StructType | None:
        """Return the stored schema; None if there is none. Raises SourceError or OptionError."""
        try:
            if self._files.get_file_info(self._path).type is fs.FileType.NotFound:
                return None
            with self._files.open_input_stream(self._path) as stream:
                record = json.loads(bytes(stream.read()))
            topics, schema = record["topics"], StructType.fromJson(record["schema"])
        except (pa.ArrowException, OSError) as error:
            raise SourceError(
                f"{self._location}, which option schemaLocation names, cannot be read: {error}"
            ) from None
        except (ValueError, TypeError, KeyError) as error:
            raise SourceError(
                f"{self._location}, which option schemaLocation names, has no schema: {error!r}"
            ) from None
        if topics != self._topics:
            raise OptionError(
                f"option schemaLocation is {self._location!r}, where the schema of topic {topics} is kept, "
                f"not of {self._topics}"
            )
        return schema

    def write(self, schema: StructType) -> None:
        text = json.dumps({"topics": self._topics, "schema": schema.jsonValue()}, indent=1)
        unfinished = f"{self._path}.{uuid.uuid4().hex}"
        try:
            folder = self._path.rpartition("/")[0]
            if folder:
                self._files.create_dir(folder)
            try:
                with self._files.open_output_stream(unfinished) as stream:
                    stream.write(text.encode())
                self._files.move(unfinished, self._path)
            except (pa.ArrowException, OSError):
                with suppress(pa.ArrowException, OSError):
                    self._files.delete_file(unfinished)
                raise
        except (pa.ArrowException, OSError) as error:
            raise SourceError(
                f"{self._location}, which option schemaLocation names, cannot be written: {error}"
            ) from None


def _bodies(options: SourceOptions) -> Iterator[bytes]:
    """Yield some bodies of each log."""
    cluster = TopicCluster(options)
    try:
        found = cluster.survey(Offset({}), NewChannel.NONE)
    finally:
        cluster.close()
    for name, log in sorted(found.items()):
        yield from _of_log(log, options.on(topic_of(name)))


def _of_log(log: FoundLog, options: SourceOptions) -> Iterator[bytes]:
    bounds = log.bounds
    begin = bounds.extents[0][0] if bounds.extents else bounds.end
    oldest = bounds.advance(begin, _MESSAGES)
    newest = bounds.position_after(begin, max(0, bounds.count(begin) - _MESSAGES))
    for start, end in ((begin, oldest), (max(oldest, newest), bounds.readable_end)):
        yield from _between(log, options, start, end)


def _between(log: FoundLog, options: SourceOptions, start: int, end: int) -> Iterator[bytes]:
    address, size = log.address, 0
    try:
        with NodeConnection(address, options, options.retry_s) as node:
            while start < end and size < _BYTES:
                found = node.log_range(options.topic, start, end, log=log.bounds.data_path)
                yield from found.messages.bodies.to_pylist()
                size += found.messages.bodies.nbytes
                start = found.following
    except NodeError as error:
        raise SourceError(explain(address, error)) from error
