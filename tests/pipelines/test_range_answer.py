"""An answer accounts for every sequence that was asked for, or says which it lacks."""

import pytest

from nsqclient.wire.frames import FRAME_MESSAGE, encode_frame
from nsqclient.wire.message import MessageRecord
from pyspark_nsq.source.range_answer import RangeAnswer

LOST = frozenset({"damaged", "removed"})


def frames(*sequences):
    return b"".join(
        encode_frame(FRAME_MESSAGE, MessageRecord(0, 1, b"%016x" % (5 << 54 | sequence), b"x").encode())
        for sequence in sequences
    )


def answer(start, end, following, body, gaps=""):
    headers = {"X-Nsq-Next-Sequence": str(following)} | ({"X-Nsq-Gaps": gaps} if gaps else {})
    return RangeAnswer.parse(start, end, headers, body)


NAMED = "11-13 compacted, 13-15 unused, 15-17 damaged, 17-19 removed"
COMPACTED = "10-12 compacted, 12-14 unused, 14-17 earlier, 17-20 compacted"


@pytest.mark.parametrize(
    ("found", "lost", "ahead", "missing"),
    [
        (answer(10, 20, 13, frames(10, 11, 12)), LOST, 0, []),
        (answer(10, 20, 20, frames(10, 19), NAMED), LOST, 0, ["15 to 17 (damaged)", "17 to 19 (removed)"]),
        # Compacted messages are missing unless the channel had finished them before.
        (
            answer(10, 20, 20, b"", COMPACTED),
            LOST | {"compacted"},
            0,
            ["10 to 12 (compacted)", "17 to 20 (compacted)"],
        ),
        (answer(10, 20, 20, b"", COMPACTED), LOST | {"compacted"}, 12, ["17 to 20 (compacted)"]),
        (answer(10, 20, 20, b"", COMPACTED), LOST | {"compacted"}, 19, ["17 to 20 (compacted)"]),
        # An nsqd that lost messages without naming a gap.
        (answer(10, 13, 13, frames(10, 12)), LOST, 0, ["1 of 10 to 13 (no reason given)"]),
        (answer(10, 13, 13, b""), LOST, 0, ["3 of 10 to 13 (no reason given)"]),
    ],
)
def test_missing_messages_are_those_of_gaps_that_mean_loss(found, lost, ahead, missing):
    assert found.missing(lost, ahead) == missing


@pytest.mark.parametrize(
    ("body", "following", "gaps"),
    [
        (frames(10, 11), 10, ""),
        (frames(10, 11), 21, ""),
        (frames(9, 10), 12, ""),
        (frames(10, 12), 12, ""),
        (frames(11, 10), 12, ""),
        (frames(10, 10), 12, ""),
        (frames(10, 11), 12, "10-12 damaged"),
        (frames(10, 11), 12, "nonsense"),
    ],
    ids=["stands", "beyond", "before", "behind", "order", "twice", "both", "gaps"],
)
def test_unrelated_answer_is_refused(body, following, gaps):
    with pytest.raises(ValueError):
        answer(10, 20, following, body, gaps)
    with pytest.raises(ValueError):
        RangeAnswer.parse(10, 20, {}, frames(10))
