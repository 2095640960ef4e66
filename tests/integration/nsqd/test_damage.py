"""Files that a power cut or a bad disk left behind: sound messages are delivered, and nsqd always starts."""

import pytest

from nsqd.log.layout import APPEND_HEADER_BYTES
from tests.integration.nsqd.restarts import copied, restored
from tests.support.nsqd_http import metrics
from tests.support.processes import Cluster
from tests.support.stores import appends_of, flip
from tests.support.waiting import wait_until
from tests.support.wire import fin, mpub, sub

APPENDS = 9
LOST = 'nsqd_channel_lost_total{channel="ch",topic="t"}'


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A killed nsqd with a segment of APPENDS appends of two messages, and a channel with that backlog."""
    cluster = Cluster(tmp_path_factory.mktemp("damage"))
    nsqd = cluster.nsqd()
    nsqd.create("t", "ch")
    for n in range(APPENDS):
        nsqd.post("/mpub?topic=t", b"%d-a\n%d-b" % (n, n))
    nsqd.kill()
    copied(nsqd)
    yield nsqd
    cluster.close()


@pytest.fixture
def nsqd(killed):
    """The killed nsqd with its first files."""
    yield restored(killed)
    assert "Traceback" not in killed.logs()


def bodies_of(*appends):
    return [b"%d-%b" % (n, which) for n in appends for which in (b"a", b"b")]


ALL = bodies_of(*range(APPENDS))


def log_of(nsqd):
    """The file of the only segment."""
    (log,) = (nsqd.folder / "t.topic").glob("*.log")
    return log


def cut(path, drop):
    path.write_bytes(path.read_bytes()[:-drop])


def delivered(nsqd, connect, channel="ch"):
    """Start nsqd and consume the whole backlog."""
    nsqd.start()
    wire = connect(nsqd)
    assert wire.ask(sub("t", channel)) == b"OK"
    wire.send(b"RDY 2500\n")
    assert connect(nsqd).ask(mpub("t", b"the last")) == b"OK"
    bodies = []
    while not bodies or bodies[-1] != b"the last":
        message = wire.message()
        bodies.append(message.body)
        wire.send(fin(message))
    wire.quiet()
    (found,) = nsqd.get("/stats?format=json")["topics"]
    assert [c["depth"] for c in found["channels"] if c["channel_name"] == channel] == [0]
    return bodies[:-1]


def warnings(nsqd):
    return [line for line in nsqd.logs().splitlines() if " WARNING: " in line]


@pytest.mark.parametrize(("append", "where"), [(0, 0), (4, 33), (8, 73)])
def test_flipped_bit_in_messages_costs_append_they_lie_in(nsqd, connect, append, where):
    log = log_of(nsqd)
    _, damaged = appends_of(log)[append]
    flip(log, 8 * (damaged.start + where))
    assert delivered(nsqd, connect) == bodies_of(*(n for n in range(APPENDS) if n != append))
    assert "1 places are damaged" in warnings(nsqd)[0]
    assert "up to 2 messages from " in warnings(nsqd)[1]
    (topic,) = nsqd.get("/stats?format=json")["topics"]
    assert metrics(nsqd)[LOST] == 2
    assert topic["topic_name"] == "t"


@pytest.mark.parametrize(("append", "where"), [(0, 0), (4, 27), (8, 45)])
def test_wrong_byte_in_header_of_append_costs_nothing(nsqd, connect, append, where):
    log = log_of(nsqd)
    at, _ = appends_of(log)[append]
    flip(log, 8 * (at + where) + 6)
    assert delivered(nsqd, connect) == ALL


@pytest.mark.parametrize("drop", [1, 75, 122, 123])
def test_torn_tail_costs_only_torn_append(nsqd, connect, drop):
    log = log_of(nsqd)
    size = APPEND_HEADER_BYTES + 74
    cut(log, drop)
    whole = APPENDS - -(-drop // size)
    assert delivered(nsqd, connect) == bodies_of(*range(whole))
    if drop % size:
        assert "the end was not written completely" in warnings(nsqd)[0]


def test_missing_data_file_is_reported_and_costs_its_messages(nsqd, connect):
    nsqd.start()
    nsqd.post("/mpub?topic=t", b"in another\nsegment")
    nsqd.kill()
    min((nsqd.folder / "t.topic").glob("*.log")).unlink()
    assert delivered(nsqd, connect) == [b"in another", b"segment"]


def test_strange_things_in_data_path_are_left_alone(nsqd, connect):
    (nsqd.folder / "b@d name.topic").mkdir()
    (nsqd.folder / "notes.txt").write_text("not ours")
    (nsqd.folder / "t.topic" / "notes.txt").write_text("not ours")
    (nsqd.folder / "gone.topic.0123456789ab.deleted").mkdir()
    assert delivered(nsqd, connect) == ALL
    assert "skipping creation of invalid topic b@d name" in warnings(nsqd)[0]
    assert (nsqd.folder / "notes.txt").exists()
    assert (nsqd.folder / "t.topic" / "notes.txt").exists()
    wait_until(lambda: not list(nsqd.folder.glob("*.deleted")), "the remains of a deleted topic go")
