"""Rows as requests to nsqd: bodies of MPUB and MPUB_EXT, and single deferred messages. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, IntegerType, LongType, MapType, StringType, StructType

from pyspark_nsq.source.errors import OptionError, RowError
from pyspark_nsq.source.headers import DEDUP_ID, HEADERS_TYPE, as_json, with_lengths
from pyspark_nsq.source.schema import HEADERS

BODY: Final = "body"
TOPIC: Final = "topic"
DEFER: Final = "defer_ms"
DEDUP: Final = "dedup_id"
# Rows with an id are sent in so many groups, and each group always goes to the same nsqd.
GROUPS: Final = 32
_ALLOWED: Final = {
    BODY: (BinaryType(), StringType()),
    TOPIC: (StringType(),),
    DEFER: (IntegerType(), LongType()),
    DEDUP: (StringType(),),
    HEADERS: (MapType(StringType(), StringType()), MapType(StringType(), StringType(), False)),
}
_SIZE_BYTES: Final = 4
_NO_GROUP: Final = -1


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One request: *content* has *messages* messages for a topic, delivered after *defer_ms* milliseconds.

    The content of an *extended* request has the layout of MPUB_EXT, for any number of messages.
    """

    topic: str
    content: bytes
    messages: int
    defer_ms: int = 0
    extended: bool = False
    group: int | None = None
    """Requests of one group go to one nsqd, which knows what was published to it before."""


def check_columns(schema: StructType, topic: str) -> None:
    """Raise OptionError unless rows of *schema* can be published."""
    for column in schema:
        allowed = _ALLOWED.get(column.name)
        if allowed is None:
            raise OptionError(
                f"a column {column.name!r} cannot be published; there are body (binary or string), "
                "topic (string), defer_ms (int or long), headers (map of strings) and dedup_id (string): "
                "select these"
            )
        if column.dataType not in allowed:
            words = " or ".join(kind.simpleString() for kind in allowed)
            raise OptionError(
                f"the column {column.name} is {column.dataType.simpleString()}; it must be {words}"
            )
    if BODY not in schema.names:
        raise OptionError("there is no column body, which is what a message is made of")
    if TOPIC not in schema.names and not topic:
        raise OptionError("neither option topic nor a column topic says where the messages go")


def outgoing(
    batch: pa.RecordBatch, topic: str, max_bytes: int, *, max_body: int | None = None, row: int = 0
) -> Iterator[Outgoing]:
    """Yield the requests that publish *batch*, each topic in the order of its rows.

    *max_body* is the size in bytes of the largest body that nsqd accepts, if it is known. *row* is the number
    of the first row in its partition. Raises RowError if nsqd would refuse a row.
    """
    names = batch.schema.names
    bodies = batch.column(BODY).cast(pa.binary())
    _check_bodies(bodies, max_body, row)
    topics = batch.column(TOPIC) if TOPIC in names else pa.repeat(pa.scalar(topic), batch.num_rows)
    topics = pc.fill_null(topics.cast(pa.string()), pa.scalar(topic, pa.string()))
    defers = batch.column(DEFER).cast(pa.int64()) if DEFER in names else None
    waits = np.zeros(batch.num_rows, np.int64) if defers is None else pc.fill_null(defers, 0).to_numpy()
    ids = _ids(batch)
    # Without any headers, the requests have the form that an nsqd without headers also accepts.
    texts = None
    if HEADERS in names or ids is not None:
        none = pa.nulls(batch.num_rows, HEADERS_TYPE)
        texts = as_json(batch.column(HEADERS) if HEADERS in names else none, ids)
    extended = texts is not None and bool(pc.any(pc.greater(pc.binary_length(texts), 0)).as_py())
    if extended:
        bodies = with_lengths(texts, bodies)
    groups = _groups(batch.num_rows, ids)
    for name in pc.unique(topics).to_pylist():
        if not name:
            raise RowError("the column topic is null or empty, and option topic says nothing either")
        of_topic = pc.equal(topics, name).to_numpy(zero_copy_only=False)
        for number in np.unique(groups[of_topic]):
            chosen = of_topic & (groups == number)
            group = None if number == _NO_GROUP else int(number)
            at_once = bodies.filter(pa.array(chosen & (waits <= 0)))
            yield from _batches(name, at_once, max_bytes, extended=extended, group=group)
            for index in np.flatnonzero(chosen & (waits > 0)):
                one = bodies.slice(int(index), 1)
                content = _framed(one) if extended else one[0].as_py()
                yield Outgoing(name, content, 1, int(waits[index]), extended, group)


def _check_bodies(bodies: Any, max_body: int | None, row: int) -> None:
    """Raise RowError for the first body that is null, empty or too large."""
    sizes = pc.fill_null(pc.binary_length(bodies), -1).to_numpy(zero_copy_only=False)
    refused = sizes <= 0 if max_body is None else (sizes <= 0) | (sizes > max_body)
    if not refused.any():
        return
    first = int(np.argmax(refused))
    size = int(sizes[first])
    if size > 0:
        raise RowError(
            f"the body of row {row + first} of a partition has {size} bytes, above the {max_body} of nsqd "
            "(--max-msg-size); no row of its batch was published"
        )
    what = "null" if size < 0 else "empty"
    raise RowError(
        f"the body of row {row + first} of a partition is {what}, and a message needs a body; no row of its "
        "batch was published"
    )


def _ids(batch: pa.RecordBatch) -> Any:
    """Return the id by which nsqd recognizes each row: the column or else the header; None without both."""
    ids = batch.column(DEDUP) if DEDUP in batch.schema.names else None
    if HEADERS not in batch.schema.names:
        return ids
    headers = batch.column(HEADERS)
    noted = pc.map_lookup(headers, pa.scalar(DEDUP_ID, headers.type.key_type), "first")
    return noted if ids is None else pc.coalesce(ids, noted)


def _groups(rows: int, ids: Any) -> npt.NDArray[np.int64]:
    """Return the group of each row: equal for equal ids, in every task and every attempt."""
    if ids is None:
        return np.full(rows, _NO_GROUP)
    groups = (_NO_GROUP if one is None else crc32(one.encode()) % GROUPS for one in ids.to_pylist())
    return np.fromiter(groups, np.int64, rows)


def _batches(
    topic: str, bodies: Any, max_bytes: int, *, extended: bool, group: int | None
) -> Iterator[Outgoing]:
    """Yield the bodies in the form of MPUB: their number, then the size of each and the body."""
    sizes = pc.binary_length(bodies).to_numpy(zero_copy_only=False).astype(np.int64) + _SIZE_BYTES
    ends = np.cumsum(sizes)
    first = 0
    while first < len(bodies):
        before = int(ends[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + max_bytes, "right")))
        content = _framed(bodies.slice(first, stop - first))
        yield Outgoing(topic, content, stop - first, extended=extended, group=group)
        first = stop


def _framed(bodies: Any) -> bytes:
    count = len(bodies)
    lengths = pc.binary_length(bodies).to_numpy(zero_copy_only=False).astype(">u4").tobytes()
    cuts = np.arange(0, (count + 1) * _SIZE_BYTES, _SIZE_BYTES, dtype=np.int32)
    heads = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(cuts), pa.py_buffer(lengths)])
    joined = pc.binary_join_element_wise(heads, bodies, pa.scalar(b"", pa.binary()))
    ends = np.frombuffer(joined.buffers()[1], np.int32, count + 1, joined.offset * 4)
    values: bytes = joined.buffers()[2][int(ends[0]) : int(ends[-1])].to_pybytes()
    return count.to_bytes(_SIZE_BYTES, "big") + values
