"""A message read alone equals what a scan over the log finds, whatever was appended and whatever is broken.

A wrong byte is never delivered: data that differs from what was written is a gap with its reason.
"""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.log.frames import FRAME_OVERHEAD, Block
from nsqd.log.gaps import Gap
from tests.support.stores import FIRST, Shop, deferred, read_all

appends = st.lists(
    st.one_of(
        st.lists(st.binary(max_size=300), min_size=1, max_size=5),
        st.builds(lambda size, count: [b"m" * size] * count, st.integers(0, 9000), st.integers(1, 60)),
        # Many small appends in a row, as single publishes make them.
        st.builds(lambda count: count, st.integers(1, 300)),
        st.none(),  # a note
        st.just("skip"),
    ),
    min_size=1,
    max_size=12,
)


def fill(shop, plan):
    written = {}
    for number, step in enumerate(plan):
        if step is None:
            shop.note(b"note %d" % number * 30)
        elif step == "skip":
            shop.encoder.skip_to(shop.encoder.next_seq + 7)
        elif isinstance(step, int):
            blocks = [deferred(shop.encoder, b"%d" % n * 20) for n in range(step)]
            shop.store.appender.append(blocks, [], blocks[0].first)
            for n, block in enumerate(blocks):
                written[block.first] = b"%d" % n * 20
        else:
            written |= dict(enumerate(step, shop.publish(*step).first))
    return written


def forget(store):
    for segment in store.segments:
        store.segments.cache.forget(segment)


def alone(store, seq, end):
    """What a reader of few messages gets: the body of this message, why it is missing, or None."""
    found = store.segments.read(seq, end)
    if isinstance(found, Block):
        assert found.first <= seq < found.next
        return found.frames(seq, seq + 1)[FRAME_OVERHEAD:]
    if isinstance(found, Gap):
        assert found.start <= seq < found.end
        return found.why
    return None


@settings(max_examples=120, deadline=None)
@given(appends, st.sampled_from([3000, 1 << 20]), st.data())
def test_message_read_alone_is_what_a_scan_has_of_it(plan, segment, data):
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(Path(folder))
        store = shop.new(segment=segment)
        written = fill(shop, plan)
        most = 6 if store.segments else 0
        flips = data.draw(st.lists(st.integers(0, 1 << 40), max_size=most), label="flips")
        known = data.draw(st.booleans(), label="where appends begin was seen before the damage")
        if known:
            for seq in range(FIRST, store.segments.end, 5):
                store.segments.read(seq, seq + 1)
        for flip in flips:
            segment_hit = store.segments[flip % len(store.segments)]
            content = bytearray(segment_hit.path.read_bytes())
            bit = flip // 64 % (8 * (len(content) - 144)) + 8 * 144 if len(content) > 144 else 0
            content[bit // 8] ^= 1 << bit % 8
            segment_hit.path.write_bytes(bytes(content))
        for one in store.segments:
            store.segments.cache.stretches.forget(one)
        few = {seq: alone(store, seq, seq + 1) for seq in range(FIRST, store.segments.end)}
        forget(store)
        bodies, gaps = read_all(store.segments.read, FIRST, store.segments.end)
        scanned = bodies | {seq: gap.why for gap in gaps for seq in range(gap.start, gap.end)}

        assert few == {seq: scanned[seq] for seq in few}
        assert all(written[seq] == body for seq, body in bodies.items())
        if not flips:
            assert bodies == written
        forget(store)
        store.appender.close()
