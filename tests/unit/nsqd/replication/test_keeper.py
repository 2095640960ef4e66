"""The keeper's side of a connection: what it receives, and what it answers."""

import pytest

from nsqd.replication import keeper
from nsqd.replication.frames import (
    Ack,
    Appends,
    Begin,
    CopiedTopic,
    Have,
    Hello,
    Leaves,
    Refuse,
    StillHere,
    Welcome,
)
from nsqd.replication.framing import encode
from tests.support.copied import FIRST, HELLO, HOME, KEEPER, home_file, refused


def test_a_home_is_welcomed_and_told_that_there_is_nothing(shelf):
    welcome, ack, *more = shelf.begin()

    assert welcome == Welcome(KEEPER, 2, "keeper:4150", 0, ())
    assert ack == Ack(len(encode(HELLO)), 0)
    assert Have(1, ()) in more


def test_an_acknowledgement_tells_of_all_frames_before_it(shelf, shop, said):
    shelf.begin()
    shop.publish(b"one")
    before = shelf.link.written

    (ack,) = shelf.say(*said.frames)

    assert ack == Ack(before + sum(len(encode(one)) for one in said.frames), 0)


def test_a_home_is_told_of_topics_and_appointments_it_does_not_speak_of(shelf, shop, said):
    shelf.begin(Hello(HOME, 1, 7, "home:4150"))
    shop.publish(b"one")
    shelf.say(*said.frames)
    shelf.connect()

    assert shelf.say(Hello(HOME, 1, 3, "home:4150"))[0] == Welcome(KEEPER, 2, "keeper:4150", 7, ())
    shelf.connect()
    assert shelf.say(Hello(HOME, 1, 7, "home:4150"))[0] == Welcome(KEEPER, 2, "keeper:4150", 7, ("t",))


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


def test_no_more_waits_than_a_home_may_have_sent(shelf, monkeypatch):
    monkeypatch.setattr(keeper, "_MOST_EARLY", 100 * len(encode(StillHere())))
    shelf.keeping.released = lambda _identity: False
    shelf.begin()
    assert shelf.say(*[StillHere()] * 100) == []

    assert refused(shelf.say(StillHere())).code == Refuse.BAD_FRAME


@pytest.mark.parametrize(
    "frame", [Welcome(KEEPER, 2, "x"), Begin(1), Appends(1, FIRST, 0, b""), Ack(1, 1), StillHere()]
)
def test_nothing_is_heard_before_a_hello(shelf, frame):
    answer = refused(shelf.say(frame))

    assert answer.sentence == f"{type(frame).__name__} cannot be said now"


def test_a_home_hears_once_that_its_keeper_is_about_to_leave_and_that_it_stays_after_all(shelf):
    shelf.begin()
    reason = "the keeper is draining"
    shelf.keeping.unwilling = lambda: reason

    shelf.link.look_at_drain()
    shelf.link.look_at_drain()
    assert shelf.answers() == [Leaves(leaves=True)]
    reason = ""
    shelf.link.look_at_drain()

    assert shelf.answers() == [Leaves(leaves=False)]
