"""Any bytes, in any pieces, are frames or one documented error, and frames are written as they were read."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.replication.fields import BadFrame
from nsqd.replication.framing import KINDS, FrameReader, encode
from tests.unit.nsqd.replication.test_framing import SAMPLES, framed

frames = st.one_of(
    st.sampled_from(SAMPLES).map(encode),
    st.builds(framed, st.sampled_from([*KINDS, 0, 255]), st.binary(max_size=60)),
    st.builds(
        lambda frame, at, piece: (
            (whole := encode(frame))[: at % len(whole)] + piece + whole[at % len(whole) + 1 :]
        ),
        st.sampled_from(SAMPLES),
        st.integers(0, 1 << 16),
        st.binary(min_size=1, max_size=2),
    ),
    st.binary(max_size=12),
)


def take(data: bytes, size: int) -> tuple[list[object], str]:
    reader, found = FrameReader(1 << 16), []
    try:
        for at in range(0, len(data), size):
            found.extend(reader.feed(data[at : at + size]))
    except BadFrame as error:
        return found, str(error)
    return found, ""


@given(st.lists(frames, max_size=5).map(b"".join), st.integers(1, 40))
def fuzz(data: bytes, size: int) -> None:
    found, error = take(data, max(1, len(data)))

    assert take(data, size) == (found, error)
    for frame in found:
        assert take(encode(frame), 1 << 16) == ([frame], "")
