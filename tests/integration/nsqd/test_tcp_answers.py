"""Section 2.6 FIN, REQ, TOUCH: by the owner, by a stranger, twice, and with every bad parameter."""

import pytest

from tests.support.wire import NO_ID, fin, req

WORDS = ["FIN", "REQ", "TOUCH"]


def answer(word, message_id, delay=b"0"):
    return b"%b %b%b\n" % (word.encode(), message_id, b" " + delay if word == "REQ" else b"")


@pytest.fixture
def delivered(wire, connect, topic):
    """One message, in flight on ``wire``."""
    wire.subscribe(topic, ready=5)
    connect().publish(topic, b"m")
    return wire.message()


def statistics(channel):
    return tuple(channel[key] for key in ("depth", "in_flight_count", "deferred_count", "requeue_count"))


# --- parameters


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"FIN\n", b"FIN insufficient number of params"),
        (b"TOUCH\n", b"TOUCH insufficient number of params"),
        (b"REQ %b\n" % NO_ID, b"REQ insufficient number of params"),
        *[
            (b"REQ %b %b\n" % (NO_ID, delay), b"REQ could not parse timeout " + delay)
            for delay in (b"-1", b"+1", b"x", b"1.5")
        ],
    ],
)
def test_answer_with_bad_parameters_is_fatal(wire, topic, line, error):
    wire.subscribe(topic)
    assert wire.refusal(line) == b"E_INVALID " + error


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    "message_id", [NO_ID, b"0123456789ABCDEF", b"z" * 16, b"\xff" * 16, b"+123456789abcdef"]
)
def test_id_may_be_any_16_bytes(wire, topic, word, message_id):
    wire.subscribe(topic)
    for _ in range(3):  # not fatal
        wire.send(answer(word, message_id))
        assert wire.error() == b"E_%b_FAILED %b %b failed ID not in flight" % (
            word.encode(),
            word.encode(),
            message_id,
        )
    wire.quiet()


# --- FIN


@pytest.mark.parametrize("word", WORDS)
def test_message_can_be_finished_once_only(wire, delivered, word):
    wire.send(fin(delivered), answer(word, delivered.id))
    assert wire.error() == b"E_%b_FAILED %b %b failed ID not in flight" % (
        word.encode(),
        word.encode(),
        delivered.id,
    )
    wire.quiet()


@pytest.mark.parametrize("word", WORDS)
def test_stranger_can_do_nothing_to_it(wire, connect, topic, stats, delivered, word):
    stranger = connect()
    stranger.subscribe(topic)
    stranger.send(answer(word, delivered.id))
    assert stranger.error() == b"E_%b_FAILED %b %b failed client does not own message" % (
        word.encode(),
        word.encode(),
        delivered.id,
    )
    stranger.quiet()
    assert statistics(stats(topic, "ch")) == (0, 1, 0, 0)
    wire.send(fin(delivered))
    wire.quiet()


# --- REQ


def test_message_requeued_without_delay_goes_behind_what_waits(wire, connect, topic):
    wire.subscribe(topic, ready=1)
    connect().publish(topic, b"first", b"second", b"third")
    first = wire.message()
    wire.send(req(first, 0))
    second = wire.message()
    wire.send(fin(second))
    third = wire.message()
    wire.send(fin(third))
    assert [second.body, third.body, wire.message().body] == [b"second", b"third", b"first"]


@pytest.mark.parametrize("delay", [b"3600001", b"99999999999", b"18446744073709551615"])
def test_delay_beyond_limit_is_cut_down_to_it(wire, topic, stats, delivered, delay):
    wire.send(answer("REQ", delivered.id, delay))
    wire.quiet()
    assert statistics(stats(topic, "ch")) == (0, 0, 1, 1)


def test_empty_delay_is_none(wire, delivered):
    wire.send(answer("REQ", delivered.id, b""))
    assert wire.message().id == delivered.id
