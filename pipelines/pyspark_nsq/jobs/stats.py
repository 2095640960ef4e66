"""``nsq-spark stats``: the history of ``/stats``, as a table of all nsqds, topics and channels.

nsq-spark stats --lookupd-http-address=127.0.0.1:4161 --output=history/nsq --every=10

It needs no Spark. Each file has the samples of several minutes, and appears when it is complete.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from nsqclient.wire.node_error import NodeError
from pyspark_nsq.jobs.arguments import JobArguments, fail, options_of_nodes
from pyspark_nsq.jobs.signals import Stop, stop_signals
from pyspark_nsq.parquet.layout import BY_HOUR, folder_of
from pyspark_nsq.parquet.storage import Storage, open_storage
from pyspark_nsq.sink.options import SinkOptions
from pyspark_nsq.source.asking import Asking
from pyspark_nsq.source.discovery import all_nsqds
from pyspark_nsq.source.errors import OptionError, SourceError
from pyspark_nsq.source.http import NodeConnection

PROGRAM: Final = "nsq-spark stats"
# Seconds between two checks for a signal.
_NAP_S: Final = 0.2
# How long an nsqd is still queried after every nsqlookupd has dropped it.
_REMEMBERED_S: Final = 86_400
_QUERY: Final = [("format", "json"), ("include_clients", "false"), ("include_mem", "false")]
# The columns of a topic's row and of a channel's row, with their names in /stats.
_TOPIC: Final = {
    "depth": "depth",
    "backend_depth": "backend_depth",
    "messages": "message_count",
    "bytes": "message_bytes",
}
_CHANNEL: Final = {
    "depth": "depth",
    "backend_depth": "backend_depth",
    "messages": "message_count",
    "in_flight": "in_flight_count",
    "deferred": "deferred_count",
    "requeued": "requeue_count",
    "timed_out": "timeout_count",
    "clients": "client_count",
}
SCHEMA: Final = pa.schema(
    [
        ("time", pa.timestamp("us", tz="UTC")),
        ("nsqd", pa.string()),
        ("topic", pa.string()),
        ("channel", pa.string()),
        *((name, pa.int64()) for name in dict.fromkeys((*_TOPIC, *_CHANNEL))),
        ("paused", pa.bool_()),
        ("error", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class StatsOptions:
    """The parsed command line."""

    nodes: SinkOptions
    output: str
    every_s: float
    file_s: float
    rounds: int | None


def parse(argv: Sequence[str]) -> StatsOptions:
    """Read the command line. Ends the program with code 2 and one sentence if it is invalid."""
    parser = JobArguments(
        prog=PROGRAM,
        description="Write what /stats says of all nsqds to Parquet files by date and hour, look after look: "
        "a row for each topic (channel is null) and for each channel. An nsqd that does not answer has a row "
        "with the reason in the column error.",
    )
    add = parser.add_argument
    add("--output", required=True, metavar="FOLDER", help="where the files go, also s3:// and so on")
    parser.add_nodes()
    add("--every", type=float, default=10.0, metavar="SECONDS", help="between two looks, default 10")
    add("--file-every", type=float, default=300.0, metavar="SECONDS", help="what a file has, default 300")
    add("--looks", type=int, default=None, metavar="N", help="end after so many; default: at a signal")
    given = parser.parse_args(argv)
    try:
        nodes = SinkOptions.parse(options_of_nodes(given) | {"retryTimeout": "0"})
    except OptionError as error:
        parser.error(error.sentence)
    for flag, value in (("every", given.every), ("file-every", given.file_every), ("looks", given.looks)):
        if value is not None and not value > 0:
            parser.error(f"--{flag}={value:g} is not above 0")
    return StatsOptions(nodes, given.output, given.every, given.file_every, given.looks)


def main(argv: Sequence[str]) -> int:
    """Sample until a signal comes; the exit code is 1 if something failed."""
    options = parse(argv)
    try:
        with stop_signals() as stop, closing(open_storage(options.output)) as place:
            rows = record(options, place, stop)
    except (SourceError, OSError, pa.ArrowException) as error:
        return fail(PROGRAM, str(error))
    print(f"{rows} rows written")
    return 0


def record(options: StatsOptions, place: Storage, stop: Stop, clock: Callable[[], float] = time.time) -> int:
    """Sample until *stop* or until the number of samples is reached; return the number of rows."""
    look = StatsPoller(options.nodes)
    rows: list[dict[str, Any]] = []
    written = looks = 0
    began = due = clock()
    try:
        while not stop.asked and looks != options.rounds:
            rows += look(clock())
            looks += 1
            if clock() - began >= options.file_s:
                written += _write(place, rows)
                rows, began = [], clock()
            due = max(due + options.every_s, clock())
            while looks != options.rounds and not stop.asked and clock() < due:
                time.sleep(min(_NAP_S, max(0.0, due - clock())))
    finally:
        look.close()
        # Also after an error: they are the samples of up to *file_s* seconds.
        written += _write(place, rows)
    return written


class StatsPoller:
    """Samples all nsqds over keep-alive connections."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._asking = Asking(options)
        # When each nsqd was listed last.
        self._last_listed = dict.fromkeys(options.nsqd_http_addresses, 0.0)

    def __call__(self, now: float) -> Iterator[dict[str, Any]]:
        """Yield the rows of one sample. Raises SourceError while no nsqd is known."""
        if self._options.lookupd_http_addresses:
            try:
                listed = all_nsqds(self._asking, self._options.lookupd_http_addresses, 0.0)
            except SourceError as error:
                if not self._last_listed:
                    raise
                print(f"{error}; continuing with the nsqds that are known", file=sys.stderr, flush=True)
            else:
                # nsqlookupd no longer lists an nsqd that is down, and its row says so.
                kept = {address: at for address, at in self._last_listed.items() if now - at < _REMEMBERED_S}
                self._last_listed = kept | dict.fromkeys(listed, now)
        moment = datetime.fromtimestamp(now, UTC)
        for address, answer in self._asking.ask(self._last_listed, _stats, 0.0).items():
            if isinstance(answer, NodeError):
                yield {"time": moment, "nsqd": address, "error": str(answer)}
                continue
            for row in answer:
                yield {"time": moment, "nsqd": address, **row}

    def close(self) -> None:
        self._asking.close()


def _stats(node: NodeConnection) -> list[dict[str, Any]]:
    return node.get_json("/stats", _QUERY, lambda answer: list(rows_of(answer)))


def rows_of(stats: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each topic and each channel in an answer of ``/stats``."""
    for topic in stats["topics"] or ():
        name = topic["topic_name"]
        yield {"topic": name, "paused": topic["paused"], **_channel_stats(topic, _TOPIC)}
        for channel in topic["channels"] or ():
            yield {
                "topic": name,
                "channel": channel["channel_name"],
                "paused": channel["paused"],
                **_channel_stats(channel, _CHANNEL),
            }


def _channel_stats(record: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, int]:
    return {name: int(record[theirs]) for name, theirs in names.items() if theirs in record}


def _write(place: Storage, rows: list[dict[str, Any]]) -> int:
    """Write the rows, with a file for each hour; return their number."""
    hours: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        hours.setdefault(int(row["time"].timestamp()) // 3600, []).append(row)
    for hour, found in hours.items():
        name = f"{folder_of(BY_HOUR, hour)}/stats-{found[0]['time']:%Y%m%dT%H%M%S.%f}.parquet"
        unfinished = place.unfinished(name)
        pq.write_table(pa.Table.from_pylist(found, SCHEMA), unfinished, compression="zstd")
        place.finish(unfinished, name)
    return len(rows)
