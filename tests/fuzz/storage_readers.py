"""Each reader takes any bytes, also with a correct checksum, and gives a value or its documented error."""

import contextlib
import json
import struct
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from nsqd.engine import replay
from nsqd.engine.notes import BadNote
from nsqd.engine.numbering import Sequences
from nsqd.engine.topic import Topic
from nsqd.log import segment_index
from nsqd.log.ids import MessageIds
from nsqd.log.layout import FileHeader, NewerVersion, NotALog, decode_append, decode_file_header
from nsqd.log.segment import Segment
from nsqd.storage import checkpoint
from nsqd.storage.checkpoint import BadCheckpoint
from nsqd.storage.reservation import Reservation
from tests.support.simulated_disk import SimulatedDisk

DATA = Path("/data")
NUMBERS = st.one_of(
    st.integers(0, (1 << 64) - 1), st.sampled_from([0, 1, 1 << 63, (1 << 64) - 1, (1 << 54) - 1])
)
WORDS = st.lists(NUMBERS, max_size=12).map(lambda of: struct.pack(f"<{len(of)}Q", *of))
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
RANGES = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=3)
BACKLOG = {"end": NUMBERS, "floor": NUMBERS, "runs": RANGES} | dict.fromkeys(
    ("pages", "dues", "tries"), st.integers(-1, 3)
)
CHANNEL = BACKLOG | {"name": st.text(max_size=4), "generation": NUMBERS}
HEADER = dict.fromkeys(
    ("next", "notes", "synced", "end", "synced_notes", "kept_from", "low_water", "offset", "paused", "held"),
    NUMBERS,
) | {
    "serial": NUMBERS,
    "counters": st.just({}),
    "had": RANGES,
    "gone": st.dictionaries(st.text(max_size=4), NUMBERS, max_size=2),
    "backlog": st.fixed_dictionaries(BACKLOG),
    "channels": st.lists(st.fixed_dictionaries(CHANNEL), max_size=2),
}
# A header of the right form, and one of whose fields some are missing or of any form.
HEADERS = (
    VALUES
    | st.fixed_dictionaries(HEADER)
    | st.fixed_dictionaries({}, optional=dict.fromkeys(HEADER, VALUES) | {"serial": NUMBERS})
)
NOTES = st.one_of(
    VALUES,
    st.fixed_dictionaries(
        {"note": st.sampled_from(["create", "delete", "pause", "unpause", "empty", "defer", "commit", "x"])},
        optional={
            "channel": st.sampled_from(["c", "new", ""]) | VALUES,
            "messages": VALUES,
            "sequence": VALUES,
        },
    ),
)


def sealed(body: bytes, salt: int = 0) -> bytes:
    """Return the body with a correct checksum."""
    return body + struct.pack("<Q", xxh3_64_intdigest(body, salt))


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


def disk_with(name: str, content: bytes) -> SimulatedDisk:
    disk = SimulatedDisk(DATA)
    disk.replace(DATA / name, content, durable=True)
    return disk


@given(st.binary(max_size=200), HEADERS, NOTES, WORDS, st.booleans())
def fuzz(raw: bytes, header: object, note: object, words: bytes, whole: bool) -> None:
    content = as_json(header) + b"\n" + words
    checkpoint_file = sealed(struct.pack("<8sHHIQ", b"NSQCPT\x03\n", 3, 0, 0, len(content)) + content)
    for content in (
        raw,
        sealed(raw),
        checkpoint_file,
        checkpoint_file if whole else checkpoint_file[: len(raw)],
    ):
        with contextlib.suppress(BadCheckpoint, NewerVersion):
            checkpoint.decode(content)

    topic = Topic("t", MessageIds(1), None, 1, 10)
    topic.add_channel("c")
    for content in (raw, as_json(note)):
        with contextlib.suppress(BadNote):
            replay.apply(topic, content)

    for content in (raw, words, sealed(raw), sealed(b"NSQLOG\x02\n" + raw)):
        with contextlib.suppress(NotALog, NewerVersion):
            decode_file_header(content)
        with contextlib.suppress(NewerVersion):
            decode_append(content, 0, 0, 0)

    index = struct.pack("<8sHHIQQQQQ", b"NSQIDX\x02\n", 2, 0, len(words) // 24, 0, 100, 5, 5, 0) + words
    for content in (raw, sealed(raw), sealed(index), sealed(index + words)):
        segment = Segment(DATA, 1, FileHeader(1, 0, 0, 0))
        assert segment_index.load(disk_with(segment.index_path.name, content), segment, 100) in {True, False}

    slot = sealed(
        struct.pack("<8sHHI", b"NSQRSV\x02\n", 2, 0, 0) + words[:24].ljust(24, b"\0") + raw[:16].ljust(16)
    )
    for content in (raw, slot.ljust(512, b"\0") + raw, raw.ljust(512, b"x") + slot):
        Reservation(disk_with("reservation", content), DATA, Sequences()).load(lambda _: None)
