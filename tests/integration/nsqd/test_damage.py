"""Files that a power cut or a bad disk left behind: what is whole is delivered, and nsqd always starts."""

import pytest

from tests.support.wire import dpub, fin, mpub, sub

APPENDS = 9
MAGIC_BYTES = 8
ENTRY_BYTES = 32


@pytest.fixture
def nsqd(cluster):
    """Killed, with three times three appends of two messages in a segment and a channel that is owed them."""
    nsqd = cluster.nsqd()
    with_channel(nsqd)
    return nsqd


def with_channel(nsqd):
    nsqd.post("/topic/create?topic=t")
    nsqd.post("/channel/create?topic=t&channel=ch")
    for n in range(APPENDS):
        nsqd.post("/mpub?topic=t", b"%d-a\n%d-b" % (n, n))
    nsqd.kill()


def bodies_of(*appends):
    return [b"%d-%b" % (n, which) for n in appends for which in (b"a", b"b")]


ALL = bodies_of(*range(APPENDS))


def files(nsqd):
    """The data file and the index of the one segment."""
    (log,) = (nsqd.folder / "t.topic").glob("*.log")
    (index,) = (nsqd.folder / "t.topic").glob("*.index")
    return log, index


def flip(path, offset, bit=0):
    content = bytearray(path.read_bytes())
    content[offset] ^= 1 << bit
    path.write_bytes(content)


def cut(path, drop):
    path.write_bytes(path.read_bytes()[:-drop])


def delivered(nsqd, connect, channel="ch"):
    """Start, and take all that is owed."""
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


def test_undamaged_files_are_read_without_a_word(nsqd, connect):
    assert delivered(nsqd, connect) == ALL
    assert warnings(nsqd) == []


@pytest.mark.parametrize("append", [0, 4, 7])
@pytest.mark.parametrize("where", [0, 4, 9, 17, 33, 35])
def test_a_flipped_bit_in_a_data_file_costs_the_append_it_lies_in(nsqd, connect, append, where):
    log, _ = files(nsqd)
    size = log.stat().st_size // APPENDS
    flip(log, append * size + where)
    assert delivered(nsqd, connect) == bodies_of(*(n for n in range(APPENDS) if n != append))
    (warning,) = warnings(nsqd)
    assert "checksum mismatch" in warning
    assert "2 messages from " in warning


def test_a_flipped_bit_in_the_last_append_costs_that_append(nsqd, connect):
    log, _ = files(nsqd)
    flip(log, log.stat().st_size - 1)
    assert delivered(nsqd, connect) == bodies_of(*range(APPENDS - 1))


@pytest.mark.parametrize("drop", [1, 35, 36, 72])
def test_a_torn_tail_costs_what_was_torn(nsqd, connect, drop):
    log, _ = files(nsqd)
    size = log.stat().st_size // APPENDS
    cut(log, drop)
    whole = APPENDS - -(-drop // size)
    assert delivered(nsqd, connect) == bodies_of(*range(whole))
    assert "the end was not written completely" in warnings(nsqd)[0]


@pytest.mark.parametrize("drop", [1, 31, 32, 33])
def test_an_append_without_its_index_entry_does_not_exist(nsqd, connect, drop):
    _, index = files(nsqd)
    cut(index, drop)
    assert delivered(nsqd, connect) == bodies_of(*range(APPENDS - -(-drop // ENTRY_BYTES)))


@pytest.mark.parametrize("field", range(0, ENTRY_BYTES, 4))
def test_a_flipped_bit_in_an_index_costs_no_more_than_two_appends(nsqd, connect, field):
    _, index = files(nsqd)
    flip(index, MAGIC_BYTES + 4 * ENTRY_BYTES + field, bit=5)
    kept = delivered(nsqd, connect)
    assert set(bodies_of(0, 1, 2, 3, 6, 7, 8)) <= set(kept)


def test_a_flipped_bit_in_the_magic_of_an_index_does_not_cost_the_file(nsqd, connect):
    _, index = files(nsqd)
    flip(index, 0)
    assert delivered(nsqd, connect) == ALL


def test_blocks_of_zeros_at_the_end_are_cut_off(nsqd, connect):
    for path in files(nsqd):
        with path.open("ab") as file:
            file.write(bytes(4096))
    assert delivered(nsqd, connect) == ALL


@pytest.mark.parametrize("damage", [lambda path: flip(path, 40), lambda path: path.write_bytes(b"")])
def test_a_damaged_checkpoint_means_delivering_again_what_is_on_disk(nsqd, connect, damage):
    damage(nsqd.folder / "t.topic" / "checkpoint")
    assert delivered(nsqd, connect) == ALL
    assert "all that is on disk is delivered again" in warnings(nsqd)[0]


def test_a_missing_checkpoint_means_delivering_again_what_is_on_disk(nsqd, connect):
    (nsqd.folder / "t.topic" / "checkpoint").unlink()
    assert delivered(nsqd, connect) == ALL


def test_an_unfinished_checkpoint_is_not_looked_at(nsqd, connect):
    (nsqd.folder / "t.topic" / "checkpoint.tmp").write_bytes(b"half of it")
    (nsqd.folder / "nsqd.dat.tmp").write_bytes(b"{")
    assert delivered(nsqd, connect) == ALL


def test_a_missing_data_file_is_told_and_costs_its_messages(nsqd, connect):
    nsqd.start()
    nsqd.post("/mpub?topic=t", b"in another\nsegment")
    nsqd.kill()
    min((nsqd.folder / "t.topic").glob("*.log")).unlink()
    assert delivered(nsqd, connect) == [b"in another", b"segment"]


def test_strange_things_in_the_data_path_are_left_alone(nsqd, connect):
    (nsqd.folder / "b@d name.topic").mkdir()
    (nsqd.folder / "notes.txt").write_text("not ours")
    (nsqd.folder / "t.topic" / "notes.txt").write_text("not ours")
    (nsqd.folder / "gone.topic.deleted").mkdir()
    assert delivered(nsqd, connect) == ALL
    assert "skipping creation of invalid topic b@d name" in warnings(nsqd)[0]
    assert (nsqd.folder / "notes.txt").exists()
    assert (nsqd.folder / "t.topic" / "notes.txt").exists()
    assert not (nsqd.folder / "gone.topic.deleted").exists()


def test_a_damaged_deferred_message_is_lost_alone(cluster, connect):
    nsqd = cluster.nsqd()
    wire = connect(nsqd)
    wire.subscribe("t")
    wire.send(dpub("t", 60000, b"damaged"), dpub("t", 400, b"whole"))
    wire.ok(2)
    wire.close()
    nsqd.kill()
    log, _ = files(nsqd)
    flip(log, 30)
    nsqd.start()
    again = connect(nsqd)
    again.subscribe("t", ready=10)
    assert again.message().body == b"whole"
