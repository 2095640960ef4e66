"""Requests that nsqd answers."""

import asyncio

import pytest

from nsqclient._requests import MAX_MESSAGES, PendingCommand, Publish, copy_of
from nsqclient.wire import commands
from nsqclient.wire.errors import ProtocolError


def future() -> asyncio.Future[bytes]:
    return asyncio.get_running_loop().create_future()


def joined(*bodies: bytes) -> Publish:
    publish = Publish.of("t", bodies[0], future())
    for body in bodies[1:]:
        publish.join(body, future())
    return publish


async def test_one_message_is_sent_as_pub_and_several_as_mpub():
    assert b"".join(joined(b"a").parts()) == commands.pub("t", b"a")
    assert b"".join(joined(b"a", b"b").parts()) == commands.mpub("t", [b"a", b"b"])


async def test_size_counts_what_has_joined():
    assert joined(b"aa", b"bbb").size == 5


async def test_only_messages_for_the_same_topic_join_and_not_too_many():
    publish = joined(*[b"x"] * (MAX_MESSAGES - 1))

    assert publish.has_room("t")
    assert not publish.has_room("u")
    publish.join(b"x", future())
    assert not publish.has_room("t")
    assert not joined(bytes(300_000)).has_room("t")


async def test_all_that_joined_have_answer_but_for_those_that_gave_up():
    publish = joined(b"a", b"b", b"c")
    publish.answers[1].cancel()

    publish.succeed(b"OK")

    assert [answer.cancelled() or answer.result() for answer in publish.answers] == [b"OK", True, b"OK"]
    assert publish.is_settled


async def test_each_has_error_of_its_own():
    publish = joined(b"a", b"b")
    publish.fail(ProtocolError("E_BAD_MESSAGE", "too big"))

    first, second = (answer.exception() for answer in publish.answers)

    assert first is not second
    assert str(first) == str(second) == "E_BAD_MESSAGE too big"
    assert (first.code, first.fatal) == ("E_BAD_MESSAGE", True)


async def test_what_was_joined_can_be_sent_one_by_one():
    publish = joined(b"a", b"b")
    publish.give_up_at = 5

    parts = publish.split()

    assert [b"".join(part.parts()) for part in parts] == [commands.pub("t", b"a"), commands.pub("t", b"b")]
    assert [part.answers for part in parts] == [[answer] for answer in publish.answers]
    assert [part.give_up_at for part in parts] == [5, 5]
    assert not any(part.has_room("t") for part in parts)


async def test_what_somebody_put_together_stays_together():
    batch = Publish(commands.mpub("t", [b"a", b"b"]), [future()])

    assert batch.split() == [batch]
    assert not batch.has_room("t")


async def test_bad_topic_is_refused_before_anything_joins():
    with pytest.raises(ValueError, match="topic name 'a b' is not valid"):
        Publish.of("a b", b"x", future())


@pytest.mark.parametrize("error", [OSError(2, "no"), ConnectionError("gone"), ProtocolError("E_INVALID")])
def test_copy_says_the_same_and_has_no_traceback(error):
    try:
        raise error
    except type(error) as raised:
        twin = copy_of(raised)

    assert (type(twin), str(twin), twin.__traceback__) == (type(error), str(error), None)


async def test_request_is_as_large_as_its_command():
    assert PendingCommand(b"CLS\n", [future()]).size == 4
