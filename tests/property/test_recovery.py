"""A segment cut at any byte, as a power cut may leave it, recovers a prefix of what was written."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.engine.block import Encoder
from nsqd.engine.ids import MessageIds
from nsqd.storage.disk import Disk
from nsqd.storage.topic_store import TopicStore

FIRST = 77

appends = st.lists(
    st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=4), min_size=1, max_size=6
)


def read_all(store):
    data, seq = b"", FIRST
    while (block := store.block_from(seq)) is not None:
        data += block.frames(max(seq, block.first), block.next)
        seq = block.next
    return data


@given(appends, st.data())
@settings(max_examples=80, deadline=None)
def test_whatever_reached_the_disk_a_prefix_comes_back_and_writing_goes_on(batches, data):
    folder = Path(tempfile.mkdtemp())
    try:
        encoder = Encoder(MessageIds(1), FIRST)
        store = TopicStore(Disk(), folder / "t.topic", 1 << 30, lambda _: None)
        blocks = [encoder.bodies(bodies, 1) for bodies in batches]
        for block in blocks:
            store.append([block])
        store.close()
        # The two files are written back independently of one another, so each is cut on its own.
        for pattern in ("*.log", "*.index"):
            path = next(store.folder.glob(pattern))
            content = path.read_bytes()
            keep = data.draw(st.integers(0, len(content)), label=pattern)
            filler = data.draw(st.sampled_from([b"", b"\0" * (len(content) - keep)]), label="rest")
            path.write_bytes(content[:keep] + filler)

        again = TopicStore(Disk(), folder / "t.topic", 1 << 30, lambda _: None)
        again.recover()
        recovered = read_all(again)

        prefixes = [b"".join(block.data for block in blocks[:n]) for n in range(len(blocks) + 1)]
        assert recovered in prefixes

        encoder.skip_to(max(again.next_seq, FIRST) + 1000)
        more = encoder.bodies([b"after the crash"], 2)
        again.append([more])
        assert read_all(again) == recovered + more.data
        again.close()
    finally:
        shutil.rmtree(folder)
