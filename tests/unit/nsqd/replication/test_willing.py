"""Which homes a keeper accepts."""

import pytest

from nsqd.replication.durable import make_folders
from nsqd.replication.frames import Hello, Refuse, Welcome
from tests.support.copied import HELLO, HOME, KEEPER, Shelf, refused


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


def beside(shelf):
    """Another connection to the same keeper."""
    found = Shelf(shelf.disk)
    found.keeping = shelf.keeping
    found.connect()
    return found


def test_a_home_that_comes_has_a_better_right_to_its_name_than_who_stands_in_for_it(shelf):
    stood_in = Hello(HOME, 4, 1, "other:4150", stands_in=True)
    shelf.begin(stood_in)
    home = beside(shelf)

    assert isinstance(home.say(HELLO)[0], Welcome)
    assert shelf.link.closing
    assert refused(beside(shelf).say(stood_in)).code == Refuse.HOME_IS_HERE
    assert not home.link.closing


@pytest.mark.parametrize("reason", ["the keeper is draining", "the disk of the keeper is nearly full"])
def test_a_node_that_drains_or_is_nearly_full_lets_those_in_that_have_copies_there(shelf, reason):
    make_folders(shelf.disk, shelf.folder())
    shelf.keeping.unwilling = lambda: reason

    # The home may have lost messages that only this copy has.
    assert isinstance(shelf.say(HELLO)[0], Welcome)
    new = Hello(b"o" * 16, 5, 1, "new:4150")
    assert refused(beside(shelf).say(new)).sentence == reason
