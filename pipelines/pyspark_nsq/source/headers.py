"""Reads the headers of messages, which nsqd sends before the bodies, as columns, and writes them there.

nsqd answers ``/log/range?headers=true`` with ``uint8 4 | uint16 length | JSON object`` before each body, or a
single byte 0 before the body of a message without headers. ``/mpub_ext`` takes only length and object.
"""

import json
from itertools import accumulate, chain
from json.encoder import encode_basestring
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nsqclient.wire.frames import FrameError
from nsqclient.wire.headers import EXT_JSON_HEADERS, EXT_NONE, MOST_HEADER_BYTES
from pyspark_nsq.source.errors import RowError

# By this header nsqd recognizes a message that is published again.
DEDUP_ID: Final = "dedup-id"
HEADERS_TYPE: Final = pa.map_(pa.string(), pa.string())
# Bytes before the JSON object: its kind and its length.
_BEFORE_JSON: Final = 3
# Characters that a JSON string may not have as they are.
_ESCAPED: Final = r'[\x00-\x1f"\\]'

Int64s = npt.NDArray[np.int64]


def json_ends(data: bytes, begins: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
    """Return where the JSON of each message begins and where its body begins; equal if there is no JSON.

    *begins* and *ends* are the limits of the bodies with their headers. Raises FrameError.
    """
    if (begins >= ends).any():
        raise FrameError("there is no room for headers before a body")
    octets = np.frombuffer(data, np.uint8)
    kinds = octets[begins]
    some = kinds == EXT_JSON_HEADERS
    if not (some | (kinds == EXT_NONE)).all():
        raise FrameError("before a body there are no headers of a kind that is known")
    if (begins + _BEFORE_JSON > ends)[some].any():
        raise FrameError("the headers of a message are cut off")
    lengths = np.zeros(len(begins), np.int64)
    places = begins[some]
    lengths[some] = octets[places + 1].astype(np.int64) << 8 | octets[places + 2]
    texts = begins + np.where(some, _BEFORE_JSON, 1)
    bodies = texts + lengths
    if (bodies > ends).any():
        raise FrameError("the headers of a message are cut off")
    return texts, bodies


def as_maps(texts: Any) -> Any:
    """Turn JSON objects of strings into an array of maps, empty for empty texts. Raises FrameError."""
    try:
        found = [json.loads(text) if text else {} for text in texts.to_pylist()]
        cuts = pa.array(list(accumulate(map(len, found), initial=0)), pa.int32())
        keys = pa.array(list(chain.from_iterable(found)), pa.string())
        values = pa.array(list(chain.from_iterable(one.values() for one in found)), pa.string())
    except (ValueError, TypeError, AttributeError, pa.ArrowException) as error:
        raise FrameError(f"headers are no JSON object of strings: {error}") from error
    return pa.MapArray.from_arrays(cuts, keys, values)


def as_json(maps: Any, ids: Any = None) -> Any:
    """Turn an array of maps into JSON objects; without headers the text is empty. Raises RowError.

    *ids*, if given, become the header ``dedup-id`` of their rows.
    """
    # Imported here, because the process that plans batches does not need it.
    import pyarrow.compute as pc

    ends = maps.offsets.to_numpy()
    rows = np.repeat(np.arange(len(maps)), np.diff(ends))
    keys = maps.keys.slice(ends[0], ends[-1] - ends[0])
    values = maps.items.slice(ends[0], ends[-1] - ends[0])
    kept = maps.is_valid().to_numpy(zero_copy_only=False)[rows]
    if ids is not None:
        has_id = ids.is_valid().to_numpy(zero_copy_only=False)
        kept &= ~(has_id[rows] & pc.equal(keys, DEDUP_ID).to_numpy(zero_copy_only=False))
        rows = np.append(rows[kept], np.flatnonzero(has_id))
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        given = ids.drop_null().cast(pa.string())
        names = pa.repeat(pa.scalar(DEDUP_ID), len(given))
        keys = pa.concat_arrays([keys.filter(pa.array(kept)), names]).take(pa.array(order))
        values = pa.concat_arrays([values.filter(pa.array(kept)), given]).take(pa.array(order))
    elif not kept.all():
        rows, keys, values = rows[kept], keys.filter(pa.array(kept)), values.filter(pa.array(kept))
    if values.null_count:
        name = keys.filter(values.is_null())[0].as_py()
        raise RowError(f"the header {name!r} is null in a row of the column headers; values are strings")
    members = pc.binary_join_element_wise(_quoted(keys), _quoted(values), ":")
    cuts = np.searchsorted(rows, np.arange(len(maps) + 1)).astype(np.int32)
    inner = pc.binary_join(pa.ListArray.from_arrays(pa.array(cuts), members), ",")
    objects = pc.binary_join_element_wise("{", inner, "}", "")
    texts = pc.if_else(pa.array(np.diff(cuts) > 0), objects, "").cast(pa.binary())
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest > MOST_HEADER_BYTES:
        raise RowError(
            f"the headers of a row are {longest} bytes of JSON, above the {MOST_HEADER_BYTES} of nsqd"
        )
    return texts


def _quoted(texts: Any) -> Any:
    """Return an array of strings as JSON strings."""
    import pyarrow.compute as pc

    if pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py():
        return pa.array(list(map(encode_basestring, texts.to_pylist())), pa.string())
    return pc.binary_join_element_wise('"', texts, '"', "")


def with_lengths(texts: Any, bodies: Any) -> Any:
    """Return what follows the size of a message of ``/mpub_ext``: two bytes of length, headers, body."""
    # Imported here, because the process that plans batches does not need it.
    import pyarrow.compute as pc

    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False).astype(">u2").tobytes()
    cuts = np.arange(0, 2 * len(texts) + 2, 2, dtype=np.int32)
    heads = pa.Array.from_buffers(pa.binary(), len(texts), [None, pa.py_buffer(cuts), pa.py_buffer(lengths)])
    return pc.binary_join_element_wise(heads, texts, bodies, pa.scalar(b"", pa.binary()))
