"""``nsq-spark replay``: publish an archive again, at a chosen rate, and continue where an earlier run ended.

nsq-spark replay --input=archive/orders --topic=orders-again --lookupd-http-address=127.0.0.1:4161
                 --rate=5000 --progress=replay.json

It needs no Spark: files are read one after the other, in the order of their folders and names.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_nsq.jobs.arguments import JobArguments, fail, options_of_nodes
from pyspark_nsq.parquet.listed import files_of, is_table
from pyspark_nsq.sink.options import SinkOptions
from pyspark_nsq.sink.outgoing import outgoing
from pyspark_nsq.sink.publisher import Publisher
from pyspark_nsq.source.errors import OptionError, SourceError
from pyspark_nsq.source.schema import HEADERS

PROGRAM: Final = "nsq-spark replay"
_REPORT_S: Final = 10


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The parsed command line."""

    input: Path
    sink: SinkOptions
    rate: float
    progress: Path | None


def parse(argv: Sequence[str]) -> ReplayOptions:
    """Read the command line. Ends the program with code 2 and one sentence if it is invalid."""
    parser = JobArguments(
        prog=PROGRAM,
        description="Publish the columns body and, if there is one, headers of Parquet files to a topic. "
        "With --progress a run that was ended continues with the row group that it had not finished, whose "
        "messages may be published twice.",
    )
    add = parser.add_argument
    add("--input", required=True, metavar="FOLDER", help="Parquet files, also of nsq-archive, or one file")
    add("--topic", required=True)
    parser.add_nodes()
    add("--rate", type=float, default=0.0, metavar="N", help="messages a second at most; 0: no limit")
    add("--progress", default="", metavar="FILE", help="notes what was published")
    add("--retry-seconds", default="", metavar="N", help="how long all nsqds may be away, default 30")
    given = parser.parse_args(argv)
    try:
        sink = SinkOptions.parse(
            options_of_nodes(given) | {"topic": given.topic, "retryTimeout": given.retry_seconds}
        )
    except OptionError as error:
        parser.error(error.sentence)
    if not Path(given.input).exists():
        parser.error(f"--input={given.input} does not exist")
    if given.rate < 0:
        parser.error(f"--rate={given.rate:g} is below 0")
    return ReplayOptions(
        Path(given.input), sink, given.rate, Path(given.progress) if given.progress else None
    )


def main(argv: Sequence[str]) -> int:
    """Publish until the end; the exit code is 1 if something failed."""
    options = parse(argv)
    began = time.monotonic()
    try:
        messages = replay(options)
    except (SourceError, OSError, pa.ArrowException) as error:
        return fail(PROGRAM, str(error))
    seconds = time.monotonic() - began
    print(f"{messages} messages published in {seconds:.1f} s, {messages / max(seconds, 1e-3):.0f} a second")
    return 0


def replay(options: ReplayOptions) -> int:
    """Publish what no earlier run has published; return the number of messages."""
    noted = Progress(options.progress, options.input)
    publisher = Publisher(options.sink, 0)
    reported = time.monotonic()
    limit = RateLimit(options.rate, reported)
    try:
        for file, group, rows in _row_groups(options.input, noted):
            row = 0
            for batch in rows.to_batches():
                for one in outgoing(
                    batch, options.sink.topic, _request_bytes(options), max_body=publisher.max_body(), row=row
                ):
                    publisher.publish(one)
                    time.sleep(limit.wait(one.messages, time.monotonic()))
                row += batch.num_rows
            noted.note(file, group)
            if time.monotonic() - reported > _REPORT_S:
                reported = time.monotonic()
                print(f"{publisher.messages} messages published, up to {file}", flush=True)
    finally:
        publisher.close()
    return publisher.messages


class RateLimit:
    """Limits the messages per second. After a pause it makes up for one second at most. Pure."""

    def __init__(self, rate: float, now: float) -> None:
        """With a *rate* of 0 there is no limit."""
        self._rate = rate
        self._due = now

    def wait(self, messages: int, now: float) -> float:
        """Note that so many were published; return the seconds to wait before the next ones."""
        if not self._rate:
            return 0.0
        self._due = max(self._due, now - 1) + messages / self._rate
        return max(0.0, self._due - now)


def _request_bytes(options: ReplayOptions) -> int:
    """Return the bytes of one request; they are fewer at a low rate, so that it is even."""
    return (
        min(options.sink.max_batch_bytes, int(options.rate) * 20)
        if options.rate
        else options.sink.max_batch_bytes
    )


def _row_groups(place: Path, noted: "Progress") -> Iterator[tuple[str, int, pa.Table]]:
    """Yield the bodies and headers of each row group that is still to be published. Raises SourceError."""
    paths = files_of(place) if place.is_dir() else [place]
    names = [str(path.relative_to(place)) if place.is_dir() else path.name for path in paths]
    if is_table(place):
        noted.check_there(names)
    for path, name in zip(paths, names, strict=True):
        with pq.ParquetFile(path) as file:
            if "body" not in file.schema_arrow.names:
                raise SourceError(f"{path} has no column body, which is what a message is made of")
            headers = [HEADERS] if HEADERS in file.schema_arrow.names else []
            for group in range(file.num_row_groups):
                if not noted.has(name, group):
                    yield name, group, file.read_row_group(group, columns=["body", *headers])


class Progress:
    """A file that records which row groups of an input were published."""

    def __init__(self, path: Path | None, place: Path) -> None:
        self._path = path
        self._input = str(place.absolute())
        self._done: dict[str, int] = {}
        if path is not None and path.exists():
            record = json.loads(path.read_text())
            if record["input"] != self._input:
                raise SourceError(f"--progress={path} belongs to --input={record['input']}")
            self._done = record["row_groups"]

    def has(self, file: str, group: int) -> bool:
        return group < self._done.get(file, 0)

    def check_there(self, files: Iterable[str]) -> None:
        """Raise SourceError if a table no longer lists what was published: other files may have it now."""
        gone = sorted(self._done.keys() - set(files))
        if gone:
            raise SourceError(
                f"the table no longer has {gone[0]}, which --progress={self._path} has as published: it was "
                "compacted or changed since, and its messages may be in other files now"
            )

    def note(self, file: str, group: int) -> None:
        """Record that *file* is published up to and including *group*."""
        self._done[file] = group + 1
        if self._path is not None:
            unfinished = self._path.with_name(self._path.name + ".new")
            unfinished.write_text(json.dumps({"input": self._input, "row_groups": self._done}))
            unfinished.replace(self._path)
