"""The keeper's side: what it writes, what it refuses, what it says it has."""

import errno
import random
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from nsqd.log.happened import Mark
from nsqd.replication.frames import (
    Ack,
    Appends,
    Begin,
    CopiedFile,
    CopiedTopic,
    CopyState,
    Deleted,
    FilePart,
    Have,
    Hello,
    Refuse,
    Remove,
    Rename,
    Seal,
    StillHere,
    SyncCopy,
    Welcome,
    encode,
)
from tests.support.copied import DATA, HELLO, HOME, KEEPER, Said, Shelf
from tests.support.simulated_disk import SimulatedDisk
from tests.support.stores import Shop

FIRST, SECOND = "00000001.log", "00000002.log"


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def said():
    return Said()


@pytest.fixture
def shop(said):
    shop = Shop(DATA)
    shop.new(SimulatedDisk(DATA)).tap = said
    return shop


def home_file(shop: Shop, name: str = FIRST) -> bytes:
    return shop.store._disk.read_file(shop.folder / name)


def part(name: str, offset: int, data: bytes) -> FilePart:
    return FilePart(1, name, offset, xxh3_64_intdigest(data), data)


def refused(answers) -> Refuse:
    (found,) = [one for one in answers if isinstance(one, Refuse)]
    return found


def test_a_home_is_welcomed_and_told_that_there_is_nothing(shelf):
    welcome, ack, *more = shelf.begin()

    assert welcome == Welcome(KEEPER, 2, "keeper:4150", 0, ())
    assert ack == Ack(len(encode(HELLO)), 0)
    assert Have(1, ()) in more


def test_what_is_appended_at_home_is_in_the_copy_byte_for_byte(shelf, shop, said):
    shelf.begin()
    shop.publish(b"one", b"two", notes=(b"a note",))
    shop.publish(b"three")

    shelf.say(*said.frames)

    assert shelf.content(FIRST) == home_file(shop)


def test_a_copy_recovers_as_the_home_would(shelf, shop, said):
    shelf.begin()
    for number in range(50):
        shop.publish(b"%d" % number)
    shelf.say(*said.frames)

    again = Shop(shelf.folder().parent)
    again.new(shelf.disk)
    found = again.store.recover(Mark())

    assert again.store.extents() == shop.store.extents()
    assert [segment.size for segment in found.segments] == [one.size for one in shop.store.segments]


def test_an_acknowledgement_tells_of_all_frames_before_it(shelf, shop, said):
    shelf.begin()
    shop.publish(b"one")
    before = shelf.link.written

    (ack,) = shelf.say(*said.frames)

    assert ack == Ack(before + sum(len(encode(one)) for one in said.frames), 0)


def test_what_is_to_be_durable_is_acknowledged_when_it_is(shelf, shop, said):
    shelf.begin()
    shop.publish(b"one")

    *_, ack = shelf.say(*said.frames, SyncCopy())

    assert ack == Ack(shelf.link.written, shelf.link.written)
    after = Shelf(shelf.disk.after_power_cut(random.Random(1)))
    assert after.content(FIRST) == home_file(shop)


@pytest.mark.parametrize("place", [3, 170, 215, 230, -1])
def test_a_wrong_bit_is_refused_and_nothing_of_it_is_written(shelf, shop, said, place):
    shelf.begin()
    shop.publish(b"one")
    shop.publish(b"two")
    first, second = said.frames
    shelf.say(first)
    data = bytearray(second.data)
    data[place % len(data)] ^= 4

    answers = shelf.say(Appends(1, FIRST, second.offset, bytes(data)))

    assert "damaged" in refused(answers).sentence
    assert shelf.link.closing
    assert shelf.content(FIRST) == first.data
    shelf.connect()
    assert Have(1, (CopiedFile(FIRST, *_known(shop, len(first.data), 1)),)) in shelf.begin()
    shelf.say(second)
    assert shelf.content(FIRST) == home_file(shop)


def _known(shop: Shop, size: int, messages: int) -> tuple[int, int, int, int, int]:
    segment = shop.store.segments[0]
    return segment.header.salt, size, segment.first, segment.first + messages, 0


@pytest.mark.parametrize("offset", [0, 1, 100_000])
def test_what_does_not_join_is_refused(shelf, shop, said, offset):
    shelf.begin()
    shop.publish(b"one")
    shop.publish(b"two")
    shelf.say(said.frames[0])

    answers = shelf.say(Appends(1, FIRST, offset, said.frames[1].data))

    assert refused(answers).code == Refuse.DAMAGED
    assert shelf.content(FIRST) == said.frames[0].data


def test_a_log_that_begins_in_the_middle_is_refused(shelf, shop, said):
    shelf.begin()
    shop.publish(b"one")
    shop.publish(b"two")

    assert "no such file" in refused(shelf.say(said.frames[1])).sentence


def test_a_file_is_filled_in_parts_and_has_an_index_when_it_is_whole(shelf, shop):
    shelf.begin()
    for number in range(9):
        shop.publish(b"%d" % number)
    whole = home_file(shop)

    shelf.say(part(FIRST, 0, whole[:200]), part(FIRST, 200, whole[200:]), Seal(1, FIRST, len(whole)))

    assert shelf.content(FIRST) == whole
    assert "00000001.index" in shelf.names()
    shelf.connect()
    segment = shop.store.segments[0]
    assert (
        Have(1, (CopiedFile(FIRST, segment.header.salt, len(whole), segment.first, segment.next, 0),))
        in shelf.begin()
    )


def test_a_part_that_was_damaged_on_its_way_is_refused(shelf, shop):
    shelf.begin()
    shop.publish(b"one")
    whole = home_file(shop)

    assert "damaged on its way" in refused(shelf.say(FilePart(1, FIRST, 0, 5, whole))).sentence
    assert FIRST not in (shelf.names() if shelf.disk.names(DATA) else [])


def test_a_part_that_is_damaged_at_home_is_copied_as_it_is(shelf, shop):
    shelf.begin()
    shop.publish(b"one")
    whole = bytearray(home_file(shop))
    whole[-1] ^= 1

    answers = shelf.say(part(FIRST, 0, bytes(whole)), Seal(1, FIRST, len(whole)))

    assert not [one for one in answers if isinstance(one, Refuse)]
    assert shelf.content(FIRST) == bytes(whole)


def test_a_compacted_file_takes_the_place_of_others_when_it_is_whole(shelf, shop):
    shelf.begin()
    shop.publish(b"one")
    whole = home_file(shop)
    shelf.say(part(FIRST, 0, whole), part(SECOND, 0, whole))
    compacted = "00000001.1.log"

    shelf.say(part(f"{compacted}.new", 0, whole[:100]))
    assert compacted not in shelf.names()
    shelf.say(
        part(f"{compacted}.new", 100, whole[100:]),
        Rename(1, f"{compacted}.new", compacted),
        Remove(1, FIRST),
        Remove(1, SECOND),
    )

    assert [name for name in shelf.names() if name.endswith(".log")] == [compacted]
    assert shelf.content(compacted) == whole


def test_a_checkpoint_takes_the_place_of_the_older_one_and_grows(shelf):
    shelf.begin()

    shelf.say(part("checkpoint.0.tmp", 0, b"whole"), Rename(1, "checkpoint.0.tmp", "checkpoint.0"))
    shelf.say(part("checkpoint.0", 5, b" and more"))
    assert shelf.content("checkpoint.0") == b"whole and more"
    shelf.say(part("checkpoint.0.tmp", 0, b"new"), Rename(1, "checkpoint.0.tmp", "checkpoint.0"))

    assert shelf.content("checkpoint.0") == b"new"


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_leaves_one_checkpoint_at_least(shelf, seed):
    shelf.begin()
    for number in range(4):
        slot = f"checkpoint.{number % 2}"
        shelf.say(part(f"{slot}.tmp", 0, b"c" * 5000), Rename(1, f"{slot}.tmp", slot))

    after = Shelf(shelf.disk.after_power_cut(random.Random(seed)))

    whole = [one for one in ("checkpoint.0", "checkpoint.1") if one in after.names()]
    assert b"c" * 5000 in [after.content(one) for one in whole]


@pytest.mark.parametrize("seed", range(20))
def test_what_a_power_cut_has_left_of_a_copy_is_told_as_far_as_it_is_sound(shelf, shop, said, seed):
    shelf.begin()
    for number in range(30):
        shop.publish(b"%d" % number * 300)
    shelf.say(*said.frames[:10], SyncCopy())
    shelf.say(*said.frames[10:])

    after = Shelf(shelf.disk.after_power_cut(random.Random(seed)))
    (have,) = [one for one in after.begin() if isinstance(one, Have)]

    (found,) = have.files
    ends = [frame.offset + len(frame.data) for frame in said.frames]
    assert found.size in ends[9:]
    assert home_file(shop).startswith(after.content(FIRST))
    after.say(*[frame for frame in said.frames if frame.offset >= found.size])
    assert after.content(FIRST) == home_file(shop)


def test_a_file_that_was_not_finished_is_not_told_of(shelf, shop):
    shelf.begin()
    shop.publish(b"one")
    shelf.say(part("00000001.1.log.new", 0, home_file(shop)))

    shelf.connect()
    assert Have(1, ()) in shelf.begin()
    after = Shelf(shelf.disk.killed())
    assert Have(1, ()) in after.begin()
    assert after.names() == []


def test_a_full_disk_ends_the_connection_with_a_sentence_and_what_was_there_stays(shelf, shop, said):
    shelf.begin()
    shop.publish(b"one")
    shop.publish(b"x" * 9000)
    shelf.say(said.frames[0])
    shelf.disk.fail(errno.ENOSPC, "append", partial=100)

    answers = shelf.say(said.frames[1])

    assert refused(answers) == Refuse(Refuse.DISK, "the keeper's disk: no space left on device")
    shelf.connect()
    (have,) = [one for one in shelf.begin() if isinstance(one, Have)]
    assert have.files[0].size == len(said.frames[0].data)
    shelf.say(said.frames[1])
    assert shelf.content(FIRST) == home_file(shop)


def test_what_could_not_be_synced_is_not_said_to_be(shelf, shop, said):
    shelf.begin()
    shop.publish(b"one")
    shelf.disk.fail(errno.EIO, "sync")

    answers = shelf.say(*said.frames, SyncCopy())

    assert refused(answers).code == Refuse.DISK
    assert all(one.synced == 0 for one in answers if isinstance(one, Ack))


def test_a_home_that_lost_what_the_copy_has_begins_another_beside_it(shelf, shop, said):
    shelf.begin()
    shop.publish(b"one")
    shelf.say(*said.frames)
    shelf.connect()
    shelf.say(HELLO)
    shelf.say(CopiedTopic(1, "t"), CopiedTopic(2, "u"))

    shelf.say(Begin(2, (1,)))
    shelf.say(*said.frames)

    assert shelf.content(FIRST, 1) == shelf.content(FIRST, 2) == home_file(shop)


def test_what_the_home_has_too_moves_to_the_new_appointment(shelf, shop, said):
    shelf.begin()
    shop.publish(b"one")
    shop.publish(b"two")
    shelf.say(said.frames[0])
    shelf.connect()
    shelf.say(HELLO)
    shelf.say(CopiedTopic(1, "t"))

    shelf.say(Begin(2))
    shelf.say(said.frames[1])

    assert shelf.content(FIRST, 2) == home_file(shop)
    assert shelf.disk.names(shelf.folder().parent) == []


def test_a_home_is_told_of_topics_and_appointments_it_does_not_speak_of(shelf, shop, said):
    shelf.begin(Hello(HOME, 1, 7, "home:4150"))
    shop.publish(b"one")
    shelf.say(*said.frames)
    shelf.connect()

    assert shelf.say(Hello(HOME, 1, 3, "home:4150"))[0] == Welcome(KEEPER, 2, "keeper:4150", 7, ())
    shelf.connect()
    assert shelf.say(Hello(HOME, 1, 7, "home:4150"))[0] == Welcome(KEEPER, 2, "keeper:4150", 7, ("t",))


def test_a_deleted_topic_takes_every_copy_of_it_along(shelf, shop, said):
    shelf.begin()
    shop.publish(b"one")
    shelf.say(*said.frames)

    shelf.say(Deleted("t"), CopiedTopic(2, "t"))

    assert shelf.link.topics == {2: "t"}
    shelf.keeping.copies.remove_deleted()
    assert shelf.disk.names(shelf.folder().parent) == []


def test_the_states_of_a_copy_are_remembered_while_the_home_is_there(shelf):
    shelf.begin()

    shelf.say(CopyState(1, CopyState.LINKED), CopyState(1, CopyState.FILLED))

    assert shelf.link.linked == shelf.link.filled == {1}


@pytest.mark.parametrize(
    ("hello", "code", "sentence"),
    [
        (Hello(HOME, 1, 1, "x", version=9), Refuse.VERSION, "version 9 of the stream is not known"),
        (Hello(HOME, 2, 1, "x"), Refuse.SAME_NODE_ID, "node id 2 is that of the keeper, too"),
        (Hello(KEEPER, 1, 1, "x"), Refuse.NOT_WANTED, "does not keep its own logs"),
    ],
)
def test_a_home_that_cannot_be_kept_is_told_why(shelf, hello, code, sentence):
    found = refused(shelf.say(hello))

    assert found.code == code
    assert sentence in found.sentence


def test_two_homes_with_one_node_id_are_not_both_kept(shelf):
    shelf.begin()
    second = Shelf(shelf.disk)
    second.keeping.links = shelf.keeping.links

    answer = refused(second.say(Hello(b"o" * 16, 1, 1, "other:4150")))

    assert answer.sentence.startswith("node id 1 is that of home:4150, too")


def test_of_two_data_paths_with_one_identity_the_later_is_refused(shelf):
    shelf.begin()
    second = Shelf(shelf.disk)
    second.keeping.links = shelf.keeping.links

    answer = refused(second.say(Hello(HOME, 1, 1, "other:4150")))

    assert answer.code == Refuse.TAKEN
    assert not shelf.link.closing


def test_a_home_that_connects_again_takes_the_place_of_its_old_connection(shelf):
    shelf.begin()
    second = Shelf(shelf.disk)
    second.keeping.links = shelf.keeping.links

    assert isinstance(second.begin()[0], Welcome)
    assert shelf.link.closing


def test_nothing_is_kept_while_the_node_is_not_willing(shelf):
    shelf.keeping.unwilling = lambda: "the disk is nearly full"

    assert refused(shelf.say(HELLO)).sentence == "the disk is nearly full"


def test_a_secret_is_asked_about_before_anything_is_told(shelf):
    shelf.keeping.asks = True
    assert shelf.say(HELLO) == []

    shelf.link.admitted("")
    assert isinstance(shelf.answers()[0], Welcome)


def test_a_wrong_secret_is_refused(shelf):
    shelf.keeping.asks = True
    shelf.say(HELLO)

    shelf.link.admitted("the secret is not good for this")

    assert refused(shelf.answers()) == Refuse(Refuse.UNAUTHORIZED, "the secret is not good for this")


def test_what_comes_while_somebody_has_to_let_go_of_the_copy_waits(shelf, shop, said):
    shop.publish(b"one")
    free = False
    shelf.keeping.released = lambda _identity: free
    shelf.say(HELLO)
    shelf.say(CopiedTopic(1, "t"))

    shelf.say(Begin(1), *said.frames)
    shelf.say(StillHere())
    assert not shelf.keeping.copies.topics(HOME, 1)
    free = True
    shelf.link.released()

    assert shelf.content(FIRST) == home_file(shop)
    assert shelf.answers()[-1] == Ack(shelf.link.written, 0)


@pytest.mark.parametrize(
    "frame", [Welcome(KEEPER, 2, "x"), Begin(1), Appends(1, FIRST, 0, b""), Ack(1, 1), StillHere()]
)
def test_nothing_is_heard_before_a_hello(shelf, frame):
    answer = refused(shelf.say(frame))

    assert answer.sentence == f"{type(frame).__name__} cannot be said now"


def test_a_folder_that_has_no_topic_is_refused(shelf):
    shelf.begin()

    assert refused(shelf.say(Remove(9, FIRST))).sentence == "folder 9 has no topic"


def test_what_is_written_to_a_copy_stays_inside_it(shelf):
    shelf.begin()
    shelf.say(part("checkpoint.0.tmp", 0, b"x"))

    assert refused(shelf.say(Rename(1, "checkpoint.0.tmp", "00000001.log"))).code == Refuse.DAMAGED
    assert shelf.disk.names(Path("/data")) == ["carried"]
