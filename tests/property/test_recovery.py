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

from nsqd.engine.broker import Broker
from nsqd.engine.channel import Consumer
from nsqd.engine.limits import Limits
from nsqd.log.ids import MessageIds
from nsqd.log.tail_records import CheckpointPosition
from nsqd.server.delivery import serve
from nsqd.storage.data_path import DataPath, StorageOptions, store_of
from nsqd.storage.metadata import Metadata
from tests.support.engine import SECOND, Outlet
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
def test_any_flipped_byte_costs_at_most_append_it_lies_in_which_is_named(appends, segment, data):
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


class Machine:
    """A node with two channels; ``crash`` forgets everything but the disk."""

    def __init__(self, path, segment):
        self.path = path
        self.segment = segment
        self.now_ns = 1_700_000_000 * SECOND
        self.start()
        self.topic = self.broker.topic("t", self.now_ns)
        for name in ("a", "b"):
            self.broker.channel(self.topic, name)

    def start(self):
        self.data = DataPath(self.path, StorageOptions(max_segment_bytes=self.segment), lambda _: None)
        self.broker = Broker(MessageIds(1), Limits(mem_queue_size=3), self.data.create_log)
        self.data.restore(self.broker, Metadata(), self.now_ns)
        self.topic = self.broker.topics.get("t")

    def crash(self):
        store_of(self.topic).appender.close()
        self.start()

    def publish(self, *bodies):
        for body in bodies:
            self.topic.stage(body, self.now_ns)
        self.turn()

    def turn(self):
        blocks, noted = self.topic.staged(), self.topic.staged_notes()
        if blocks or noted:
            store_of(self.topic).appender.append(blocks, noted, self.topic.log.next_seq)
            self.broker.commit(self.topic)

    def save(self):
        store = store_of(self.topic)
        job = store.checkpoints.start_job(self.topic, store.checkpoint_position(self.topic.log.next_seq))
        job.run(self.data.disk)
        store.checkpoints.end(job)
        store.cleaner.drop_below(store.checkpoints.covered_low_water, store.checkpoints.covered_notes)
        store.cleaner.remove_files()

    def consume(self, name, count, *, finish):
        outlet = Outlet()
        consumer = Consumer(outlet, 60 * SECOND)
        channel = self.topic.channels[name]
        channel.subscribe(consumer, 0)
        consumer.rdy = count
        channel.refresh(consumer)
        serve(self.broker, channel, self.now_ns)
        taken = outlet.taken()
        if finish:
            for message_id, _, _ in taken:
                channel.finish([self.broker.ids.decode(message_id)], consumer, self.now_ns)
        self.broker.remove_consumer(consumer)
        return [body for _, _, body in taken]


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
        machine = Machine(folder, segment)
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
                finished[name] |= set(machine.consume(name, count, finish=True))
            elif what == "save":
                machine.save()
                noted = {name: set(done) for name, done in finished.items()}
            elif what == "sync":
                store = store_of(machine.topic)
                job = store.appender.begin_sync()
                if job is not None:
                    job.run(machine.data.disk)
                    store.appender.end_sync(job, None)
            else:
                machine.crash()
                finished = {name: set(done) for name, done in noted.items()}
        machine.crash()

        for name in ("a", "b"):
            got = machine.consume(name, 1000, finish=False)
            assert len(got) == len(set(got))
            assert set(got) == set(published) - noted[name]
        store_of(machine.topic).appender.close()
    finally:
        shutil.rmtree(folder)
