"""Section 2.4: which command is legal before SUB, after it, and after CLS."""

import pytest

from tests.support.wire import NO_ID, Wire, sized

INIT, SUBSCRIBED, CLOSING = "init", "subscribed", "closing"

COMMANDS = {
    "IDENTIFY": b"IDENTIFY\n" + sized(b"{}"),
    "AUTH": b"AUTH\n" + sized(b"secret"),
    "SUB": b"SUB other ch\n",
    "PUB": b"PUB states\n" + sized(b"m"),
    "MPUB": b"MPUB states\n" + sized(b"\0\0\0\1" + sized(b"m")),
    "DPUB": b"DPUB states 1\n" + sized(b"m"),
    "NOP": b"NOP\n",
    "RDY": b"RDY 1\n",
    "FIN": b"FIN %b\n" % NO_ID,
    "REQ": b"REQ %b 0\n" % NO_ID,
    "TOUCH": b"TOUCH %b\n" % NO_ID,
    "CLS": b"CLS\n",
}

ANSWERS = {
    INIT: {
        "IDENTIFY": b"OK",
        "AUTH": b"E_AUTH_DISABLED AUTH disabled",
        "SUB": b"OK",
        "PUB": b"OK",
        "MPUB": b"OK",
        "DPUB": b"OK",
        "NOP": None,
    },
    SUBSCRIBED: {
        "PUB": b"OK",
        "MPUB": b"OK",
        "DPUB": b"OK",
        "NOP": None,
        "RDY": None,
        "FIN": b"E_FIN_FAILED FIN %b failed ID not in flight" % NO_ID,
        "REQ": b"E_REQ_FAILED REQ %b failed ID not in flight" % NO_ID,
        "TOUCH": b"E_TOUCH_FAILED TOUCH %b failed ID not in flight" % NO_ID,
        "CLS": b"CLOSE_WAIT",
    },
    CLOSING: {
        "PUB": b"OK",
        "MPUB": b"OK",
        "DPUB": b"OK",
        "NOP": None,
        "RDY": None,
        "FIN": b"E_FIN_FAILED FIN %b failed ID not in flight" % NO_ID,
        "REQ": b"E_REQ_FAILED REQ %b failed ID not in flight" % NO_ID,
        "TOUCH": b"E_TOUCH_FAILED TOUCH %b failed ID not in flight" % NO_ID,
    },
}

FATAL = {b"E_AUTH_DISABLED AUTH disabled"}


def bring_to(wire: Wire, state: str, topic: str) -> None:
    if state != INIT:
        wire.subscribe(topic)
    if state == CLOSING:
        assert wire.ask(b"CLS\n") == b"CLOSE_WAIT"


@pytest.mark.parametrize("state", [INIT, SUBSCRIBED, CLOSING])
@pytest.mark.parametrize("word", COMMANDS)
def test_commands_in_states(wire, topic, word, state):
    bring_to(wire, state, topic)
    wire.send(COMMANDS[word])
    if word not in ANSWERS[state]:
        assert wire.error() == f"E_INVALID cannot {word} in current state".encode()
        assert wire.is_closed()
        return
    answer = ANSWERS[state][word]
    if answer is not None:
        assert wire.frame().data == answer
    if answer in FATAL:
        assert wire.is_closed()
        return
    # The connection is still open, and nothing else was sent.
    assert wire.refusal(b"BAD\n") == b"E_INVALID invalid command BAD"


@pytest.mark.parametrize("line", [b"RDY -5\n", b"RDY x\n", b"RDY 99999\n", b"RDY\n"])
def test_rdy_after_cls_is_not_even_parsed(wire, topic, line):
    bring_to(wire, CLOSING, topic)
    wire.send(line)
    wire.quiet()


def test_cls_stops_delivery_and_still_takes_answers(wire, connect, topic, stats):
    wire.subscribe(topic, ready=2)
    connect().publish(topic, b"first", b"second")
    first, second = wire.messages(2)
    assert wire.ask(b"CLS\n") == b"CLOSE_WAIT"
    connect().publish(topic, b"third")
    wire.send(b"TOUCH %b\n" % first.id, b"FIN %b\n" % first.id, b"REQ %b 0\n" % second.id)
    wire.quiet()
    channel = stats(topic, "ch")
    assert (channel["depth"], channel["in_flight_count"]) == (2, 0)
    (client,) = channel["clients"]
    assert (client["state"], client["ready_count"]) == (4, 0)
    assert (client["finish_count"], client["requeue_count"]) == (1, 1)


def test_auth_takes_no_parameters(wire):
    assert wire.refusal(b"AUTH x\n" + sized(b"s")) == b"E_INVALID AUTH invalid number of parameters"


def test_auth_is_disabled_without_auth_servers(wire):
    assert wire.refusal(COMMANDS["AUTH"]) == b"E_AUTH_DISABLED AUTH disabled"
