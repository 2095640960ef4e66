"""After a power cut, a flipped bit or a cut in a topic's files, all whole messages come back, in order.

A missing message is in a named gap, or was never synced and lies behind all that were found. Then writing
continues.
"""

import contextlib
import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.log.tail_records import CheckpointPosition
from nsqd.storage.data_path import store_of
from tests.support.machine import Machine
from tests.support.stores import Shop

SECTOR = 512

batches = st.lists(
    st.one_of(
        st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=4),
        st.builds(lambda size: [b"x" * size], st.integers(500, 3000)),
        st.just([]),  # only a note
    ),
    min_size=1,
    max_size=10,
)
sizes = st.sampled_from([1, 300, 2000, 1 << 20])


class Written:
    """A store with several appends, synced once, before the append with the number *synced*."""

    def __init__(self, folder, appends, segment, synced):
        self.shop = Shop(folder)
        self.shop.new(segment=segment)
        self.segment = segment
        self.bodies = []
        self.mark = CheckpointPosition()
        for number, bodies in enumerate([*appends, None]):
            if number == synced:
                self.sync()
            if bodies is None:
                break
            if bodies:
                block = self.shop.publish(*bodies)
                self.bodies.append(dict(enumerate(bodies, block.first)))
            else:
                self.shop.note(b"note %d" % number)
        self.shop.store.appender.close()

    def sync(self):
        assert self.shop.sync() is None
        store = self.shop.store
        self.mark = CheckpointPosition(0, 0, store.segments.synced, store.segments.end)

    @property
    def whole(self):
        return {seq: body for bodies in self.bodies for seq, body in bodies.items()}

    def files(self):
        return sorted(self.shop.folder.glob("*.log"))

    def draw_file(self, data):
        return data.draw(st.sampled_from(self.files()), label="file")

    def lost(self):
        """Every sequence that a gap reports as lost."""
        return {seq for gap in self.shop.gaps() if gap.is_loss for seq in range(gap.start, gap.end)}

    def recover(self):
        self.found = self.shop.reopen(self.mark, segment=self.segment)
        return self.shop.bodies()

    def what_is_missing_is_named(self, got):
        assert got.items() <= self.whole.items()
        end = max(self.mark.synced, max(got, default=0))
        assert {seq for seq in self.whole if seq < end} <= got.keys() | self.lost()
        assert not self.lost() & got.keys()

    def writing_goes_on(self, before):
        more = self.shop.publish(b"after the crash", b"and more")
        after = before | {more.first: b"after the crash", more.first + 1: b"and more"}
        assert self.shop.bodies() == after
        assert self.recover() == after


@contextlib.contextmanager
def written(appends, segment, synced):
    """The appends in a new folder; *synced* is how many of them were synced, -1 for never."""
    folder = Path(tempfile.mkdtemp())
    try:
        yield Written(folder, appends, segment, synced)
    finally:
        shutil.rmtree(folder)


def property_of_files(test):
    return settings(max_examples=80, deadline=None)(given(batches, sizes, st.data())(test))


@property_of_files
def test_file_cut_anywhere_leaves_all_but_named_gap(appends, segment, data):
    with written(appends, segment, data.draw(st.integers(0, len(appends)), label="synced")) as node:
        path = node.draw_file(data)
        content = path.read_bytes()
        keep = data.draw(st.integers(0, len(content)), label="keep")
        if data.draw(st.booleans(), label="the file has its size"):
            # A disk writes whole sectors.
            keep -= keep % SECTOR
            path.write_bytes(content[:keep] + bytes(len(content) - keep))
        else:
            path.write_bytes(content[:keep])

        got = node.recover()

        node.what_is_missing_is_named(got)
        node.writing_goes_on(got)


@property_of_files
def test_pages_that_never_reached_disk_leave_all_but_named_gaps(appends, segment, data):
    with written(appends, segment, -1) as node:
        for path in node.files():
            content = bytearray(path.read_bytes())
            pages = range(-(-len(content) // SECTOR))
            for page in data.draw(st.sets(st.sampled_from(pages)), label=path.name):
                end = min(len(content), (page + 1) * SECTOR)
                content[page * SECTOR : end] = bytes(end - page * SECTOR)
            path.write_bytes(content)

        got = node.recover()

        node.what_is_missing_is_named(got)
        node.writing_goes_on(got)


@property_of_files
def test_flipped_byte_costs_at_most_its_append(appends, segment, data):
    with written(appends, segment, data.draw(st.integers(0, len(appends)), label="synced")) as node:
        path = node.draw_file(data)
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1), label="at")
        content[at] ^= data.draw(st.integers(1, 255), label="flipped")
        path.write_bytes(content)

        got = node.recover()

        missing = node.whole.keys() - got.keys()
        assert got.items() <= node.whole.items()
        assert any(missing <= bodies.keys() for bodies in [*node.bodies, {}])
        assert node.lost() == missing
        node.writing_goes_on(got)


# --- with channels


def consume(machine, name, count, *, finish):
    """Deliver up to *count* messages to a consumer that then leaves; returns their bodies."""
    channel = machine.channel(name)
    consumer, outlet = machine.subscribe(channel, count)
    taken = outlet.taken()
    if finish:
        for message_id, _, _ in taken:
            channel.finish([machine.broker.ids.decode(message_id)], consumer, machine.now_ns)
    machine.broker.remove_consumer(consumer)
    return [body for _, _, body in taken]


def save(machine):
    """Write a checkpoint, and drop what nothing needs any more."""
    machine.checkpoint(machine.topic())
    store = store_of(machine.topic())
    store.cleaner.drop_below(store.checkpoints.covered_low_water, store.checkpoints.covered_notes)
    store.cleaner.remove_files()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 6)),
        st.tuples(st.just("consume a"), st.integers(1, 8)),
        st.tuples(st.just("consume b"), st.integers(1, 8)),
        st.tuples(st.sampled_from(["save", "crash", "sync"]), st.just(0)),
    ),
    max_size=25,
)


@given(steps, sizes)
@settings(max_examples=60, deadline=None)
def test_two_channels_get_everything_through_any_number_of_crashes(plan, segment):
    folder = Path(tempfile.mkdtemp())
    try:
        machine = Machine(folder, segment=segment)
        for name in ("a", "b"):
            machine.channel(name)
        machine.turn()
        published = []
        finished = {"a": set(), "b": set()}
        noted = {"a": set(), "b": set()}
        for what, count in plan:
            if what == "publish":
                bodies = [b"%d" % (len(published) + n) for n in range(count)]
                machine.publish(*bodies)
                published += bodies
            elif what.startswith("consume"):
                name = what[-1]
                finished[name] |= set(consume(machine, name, count, finish=True))
            elif what == "save":
                save(machine)
                noted = {name: set(done) for name, done in finished.items()}
            elif what == "sync":
                machine.sync(machine.topic())
            else:
                machine.crash()
                finished = {name: set(done) for name, done in noted.items()}
        machine.crash()

        for name in ("a", "b"):
            got = consume(machine, name, 1000, finish=False)
            assert len(got) == len(set(got))
            assert set(got) == set(published) - noted[name]
        machine.close()
    finally:
        shutil.rmtree(folder)
