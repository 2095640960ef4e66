"""The topics of a connection, and the folders of their copies."""

import errno

import pytest

from nsqd.replication.durable import make_folders
from nsqd.replication.frames import Begin, CopiedTopic, CopyState, Deleted, Remove
from tests.support.copied import DATA, FIRST, HELLO, HOME, home_file, refused


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


def test_a_deleted_topic_takes_every_copy_of_it_along(shelf, shop, said):
    shelf.begin()
    shop.publish(b"one")
    shelf.say(*said.frames)

    shelf.say(Deleted("t"), CopiedTopic(2, "t"))

    assert shelf.link.topics == {2: "t"}
    shelf.keeping.copies.remove_deleted()
    assert shelf.disk.names(shelf.folder().parent) == []


def test_an_appointment_that_has_no_topics_is_known_from_its_beginning(shelf):
    shelf.say(HELLO)

    shelf.say(Begin(3))

    assert shelf.keeping.copies.appointments(HOME) == [3]


def test_a_folder_that_cannot_be_removed_keeps_no_other(shelf):
    copies = shelf.keeping.copies
    first, second = DATA / "1.deleted", DATA / "2.deleted"
    copies.removable[:] = [first, second]
    for folder in (first, second):
        shelf.disk.make_folder(folder)
    shelf.disk.fail(errno.EACCES, "remove_folder")

    with pytest.raises(OSError, match="Permission"):
        copies.remove_deleted()
    assert copies.removable == [first]
    copies.remove_deleted()

    assert copies.removable == []
    assert not {first.name, second.name} & set(shelf.disk.names(DATA))


def test_the_states_of_a_copy_are_remembered_while_the_home_is_there(shelf):
    shelf.begin()

    shelf.say(CopyState(1, CopyState.LINKED), CopyState(1, CopyState.FILLED))

    assert shelf.link.copied.linked == shelf.link.copied.filled == {1}


def test_a_folder_that_has_no_topic_is_refused(shelf):
    shelf.begin()

    assert refused(shelf.say(Remove(9, FIRST))).sentence == "folder 9 has no topic"


def test_a_copy_that_is_begun_again_and_goes_again_does_not_wait_for_the_first_to_be_removed(shelf):
    copies = shelf.keeping.copies
    for _ in range(2):
        make_folders(shelf.disk, shelf.folder())
        copies.remove(HOME, 1)

    assert copies.appointments(HOME) == []
    assert len(copies.removable) == 2
    copies.remove_deleted()
    assert shelf.disk.names(DATA / "carried" / HOME.hex()) == []
