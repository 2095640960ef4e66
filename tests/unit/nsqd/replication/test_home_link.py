"""A home and a keeper meet: what they agree on, and why they do not."""

import errno
import random

import pytest

from nsqd.replication.choosing import Appointed
from nsqd.replication.frames import Ack, Ask, Gone, Have, Hello, Refuse, Told, Welcome
from nsqd.replication.framing import FrameReader, encode
from nsqd.replication.home_link import HomeLink
from tests.support.jobs import run_all
from tests.support.pair import KEEPER, Pair

_S = 1_000_000_000


@pytest.fixture
def pair():
    return Pair()


def test_a_keeper_that_is_silent_for_long_is_given_up(pair):
    pair.connect()
    pair.move()
    link = pair.link

    link.tick(pair.now + 16 * _S)

    assert link.closing
    assert link.reason == "the keeper is silent"


def test_a_keeper_with_too_much_under_way_is_given_up(pair, monkeypatch):
    monkeypatch.setattr("nsqd.replication.home_link.MOST_BEHIND", 10_000)
    pair.connect()
    pair.move()
    link = pair.link
    for _ in range(4):
        pair.home.publish(b"x" * 3000)

    assert link.reason == "the keeper does not keep up"


def test_a_home_that_was_killed_goes_on_with_its_copy(pair):
    pair.connect()
    pair.move()
    pair.home.channel("c")
    for number in range(50):
        pair.home.publish(b"%d" % number)
    pair.settle()

    pair.restart_home(pair.home.disk.killed())
    pair.home.publish(b"after")
    pair.connect()
    pair.settle()

    assert pair.home.appointed.number == 1
    assert pair.copied() == pair.at_home()


def test_what_a_home_has_lost_by_a_power_cut_stays_with_the_keeper(pair):
    pair.connect()
    pair.move()
    pair.home.publish(b"kept")
    pair.home.sync()
    pair.settle()
    cut = pair.home.disk.after_power_cut(random.Random(1))
    pair.home.publish(b"lost")
    pair.settle()
    old, whole = pair.copy_path(), pair.copied()

    pair.restart_home(cut)
    pair.home.publish(b"after")
    pair.connect()
    pair.settle()

    assert pair.home.appointed.number == 2
    assert pair.copied() == pair.at_home()
    assert b"lost" in b"".join(whole.values())
    assert pair._files(pair.disk, old) == whole


def test_what_a_power_cut_has_taken_from_the_middle_of_a_file_stays_with_the_keeper(pair):
    pair.connect()
    pair.move()
    pair.home.channel("c")
    for body in (b"before" * 9, b"lost" * 9, b"behind" * 9):
        pair.home.publish(body)
    pair.settle()
    old, whole = pair.copy_path(), pair.copied()
    disk = pair.home.disk.killed()
    name = pair.home.store().segments[-1].path
    place = disk.read_file(name).index(b"lost")
    fd = disk.open_write(name)
    disk.write_at(fd, b"\0\0\0\0", place)
    disk.close(fd)

    pair.restart_home(disk)
    pair.connect()
    pair.settle()

    assert pair.home.appointed.number == 2
    assert pair._files(pair.disk, old) == whole


def test_what_somebody_has_removed_at_home_stays_with_the_keeper(pair):
    pair.connect()
    pair.move()
    pair.home.channel("c")
    pair.home.publish(b"one")
    pair.settle()
    old, whole = pair.copy_path(), pair.copied()

    pair.home.disk.remove_folder(pair.home.store().folder)
    pair.home.store().look_for_folder()
    assert pair.link.closing
    pair.home.publish(b"two")
    pair.connect()
    pair.settle()

    assert pair._files(pair.disk, old) == whole
    assert pair.home.appointed.number == 2


def test_another_node_at_the_address_of_a_keeper_gets_another_appointment(pair):
    pair.home.appointed = Appointed(1, "keeper:4150", "aa" * 16)
    pair.home.publish(b"one")
    pair.connect()
    pair.settle()

    assert pair.home.appointed.number == 2
    assert pair.copied() == pair.at_home()


def test_a_home_that_cannot_note_an_appointment_tries_again_later(pair):
    def again(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    pair.home.appointed = Appointed(1, "keeper:4150", "aa" * 16)
    pair.home.home.again = again
    pair.connect()
    link = pair.link
    pair.move()

    assert link.reason == "the next appointment cannot be noted: no space left on device"


def test_a_keeper_with_a_full_disk_is_told_of_in_one_sentence(pair):
    pair.connect()
    pair.move()
    pair.disk.fail(errno.ENOSPC, "append", times=None)
    link = pair.link
    pair.home.publish(b"one")
    pair.move()

    assert link.refused == Refuse.DISK
    assert link.reason == "the keeper refuses: the keeper's disk: no space left on device"


@pytest.mark.parametrize(
    "welcome", [Welcome(KEEPER, 1, "keeper:4150"), Welcome(KEEPER, 2, "keeper:4150", version=7)]
)
def test_a_keeper_that_cannot_keep_is_told_why(pair, welcome):
    link = HomeLink(pair.home.home, pair.home.appointed, 0)
    link.receive(encode(welcome), 0)

    assert link.closing
    assert "node id 1" in link.reason or "version 7" in link.reason


@pytest.mark.parametrize("frame", [Ack(1 << 40, 0), Hello(KEEPER, 1, 1, "x"), Ack(0, 1)])
def test_what_a_keeper_cannot_say_ends_the_connection(pair, frame):
    link = HomeLink(pair.home.home, pair.home.appointed, 0)
    link.receive(encode(frame), 0)

    assert link.closing


def test_a_keeper_knows_who_came_and_whether_it_left_for_good(pair):
    happened = []
    pair.keeping.came = lambda link: happened.append(("came", link.hello.identity))
    pair.keeping.went = lambda link, for_good: happened.append(("went", for_good))
    pair.connect()
    pair.move()
    pair.cut()
    pair.connect()
    pair.move()

    pair.link.leave("the home leaves")
    pair.move()

    who = pair.home.home.identity
    assert happened == [("came", who), ("went", False), ("came", who), ("went", True)]


def test_whether_a_keeper_has_older_copies_is_known_when_it_says_so():
    home = Pair().home
    link = HomeLink(home.home, Appointed(3, "keeper:4150"), 0)
    link.receive(encode(Welcome(KEEPER, 2, "keeper:4150")), 0)
    assert not link.has_no_older

    link.receive(encode(Gone(1)), 0)
    assert not link.has_no_older
    link.receive(encode(Gone(2)), 0)

    assert link.has_no_older


# --- when a keeper has all ---


def said_all(pair):
    """A connection on which the home has just said all that it has, before its last words arrive."""
    pair.home.channel("c")
    for number in range(100):
        pair.home.publish(b"%d" % number)
    pair.connect()
    for _ in range(100):
        pair._work()
        if pair.link.has_said_all:
            return pair.link
        pair.step()
        pair.home.checkpoint()
        pair.now += _S
    raise AssertionError("it is never said")


def test_a_keeper_has_all_when_that_is_durable_and_not_when_it_is_said(pair):
    link = said_all(pair)
    assert not link.is_filled

    pair.move()

    assert link.is_filled
    durable = pair._files(pair.disk.after_power_cut(random.Random(3)), pair.copy_path())
    at_home = pair.at_home()
    assert len(at_home) > 3
    assert durable.items() >= {name: at_home[name] for name in at_home if name.endswith(".log")}.items()


def test_a_keeper_that_lacks_an_append_has_all_again_when_it_was_filled_in(pair, monkeypatch):
    link = said_all(pair)
    pair.move()
    monkeypatch.setattr("nsqd.replication.streaming.MAX_LIVE", 500)

    pair.home.publish(b"x" * 1000)

    pair.home.checkpoint()
    # All that was said arrives, but the home has not read the append yet.
    pair.kept.receive(b"".join(link.flush(pair.now)))
    run_all(pair.kept.jobs, pair.disk, pair.kept.ended)
    answers, pair.kept.out = pair.kept.out, []
    link.receive(b"".join(answers), pair.now)
    assert link.counts(pair.home.store())
    assert not link.is_filled
    pair.settle()
    assert link.is_filled
    assert pair.copied() == pair.at_home()


def test_a_former_keeper_is_told_what_the_home_has_when_the_present_one_has_it_too(pair):
    present = said_all(pair)
    former = HomeLink(pair.home.home, Appointed(0, "former:4150"), pair.now, visit=True)
    former.receive(encode(Welcome(b"f" * 16, 3, "former:4150")), pair.now)
    former.receive(encode(Have(1, ())), pair.now)
    former.flush(pair.now)

    def told():
        former.receive(encode(Ask(pair.home.home.identity, 0)), pair.now)
        said = FrameReader().feed(b"".join(former.flush(pair.now)))
        return any(isinstance(frame, Told) for frame in said)

    assert not told()
    pair.move()
    assert present.is_filled
    assert told()
