"""Section 2.1 and 2.2 of the protocol: the magic, lines and their ends, half commands, garbage."""

import pytest

from tests.support.wire import MAGIC_V2, NO_ID, dpub, mpub, pub, size

MAX_LINE = 16384


@pytest.mark.parametrize("magic", [b"  V1", b"V2  ", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\0", b"  v2"])
def test_unknown_magic_is_refused(connect, magic):
    assert connect(magic=b"").refusal(magic) == b"E_BAD_PROTOCOL"


def test_connection_begins_without_banner(connect, topic):
    wire = connect(magic=b"")
    wire.send(MAGIC_V2, pub(topic, b"m"))
    wire.ok()
    assert not wire.has_more()


def test_magic_and_command_may_come_byte_by_byte(connect, topic):
    wire = connect(magic=b"")
    for byte in MAGIC_V2 + pub(topic, b"abc") + b"BAD\n":
        wire.send(bytes((byte,)))
    wire.ok()
    assert wire.error() == b"E_INVALID invalid command BAD"


def test_carriage_return_before_newline_is_not_part_of_line(wire, topic):
    wire.send(b"NOP\r\n", b"SUB %b ch\r\n" % topic.encode(), b"RDY 1\r\n")
    wire.ok()
    assert wire.refusal(b"BAD\r\n") == b"E_INVALID invalid command BAD"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b"\n", b""),
        (b"\r\n", b""),
        (b"FOO bar\n", b"FOO"),
        (b"nop\n", b"nop"),
        (b" NOP\n", b""),
        (b"PUB\tx\n", b"PUB\tx"),
        (b"NOP\0\n", b"NOP\0"),
        ("H\u00c9\n".encode(), "H\u00c9".encode()),
        (b"\xff\x00\x01\n", b"\xff\x00\x01"),
    ],
)
def test_unknown_command_is_named_raw(wire, line, word):
    assert wire.refusal(line) == b"E_INVALID invalid command " + word


def test_two_spaces_make_empty_parameter(wire):
    assert wire.refusal(b"SUB  topic ch\n") == b'E_BAD_TOPIC SUB topic name "" is not valid'


def test_surplus_parameters_are_ignored(wire, topic):
    name = topic.encode()
    wire.send(b"NOP a  b\n", b"IDENTIFY x\n" + size(2) + b"{}")
    wire.send(b"PUB %b more  words\n" % name + size(1) + b"m")
    wire.send(b"SUB %b ch and more\n" % name, b"RDY 0 5 x\n", b"FIN %b a b\n" % NO_ID)
    wire.ok(3)
    assert wire.error().startswith(b"E_FIN_FAILED")


@pytest.mark.parametrize("length", [MAX_LINE - 2, MAX_LINE - 1])
def test_line_may_have_16384_bytes_with_its_newline(wire, length):
    assert wire.refusal(b"A" * length + b"\n") == b"E_INVALID invalid command " + b"A" * length


@pytest.mark.parametrize("length", [MAX_LINE, MAX_LINE + 1, 3 * MAX_LINE])
@pytest.mark.parametrize("newline", [b"\n", b""])
def test_longer_line_is_dropped_without_word(wire, length, newline):
    wire.send(b"A" * length, newline)
    assert wire.is_closed()


@pytest.mark.parametrize("line", [b"N", b"NOP", b"PUB topic", b"FIN 0123456789abcdef", b"IDENTIFY"])
def test_end_within_line_is_silent(wire, line):
    wire.send(line)
    wire.end()
    assert wire.is_closed()


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (b"IDENTIFY\n", b"E_BAD_BODY IDENTIFY failed to read body size"),
        (b"IDENTIFY\n" + size(9) + b"{}", b"E_BAD_BODY IDENTIFY failed to read body"),
        (b"AUTH\n\0\0", b"E_BAD_BODY AUTH failed to read body size"),
        (b"AUTH\n" + size(9) + b"se", b"E_BAD_BODY AUTH failed to read body"),
        (b"PUB t\n\0\0\0", b"E_BAD_MESSAGE PUB failed to read message body size"),
        (b"PUB t\n" + size(9) + b"mess", b"E_BAD_MESSAGE PUB failed to read message body"),
        (b"DPUB t 5\n", b"E_BAD_MESSAGE DPUB failed to read message body size"),
        (b"DPUB t 5\n" + size(9) + b"mess", b"E_BAD_MESSAGE DPUB failed to read message body"),
        (b"MPUB t\n\0", b"E_BAD_BODY MPUB failed to read body size"),
        (b"MPUB t\n" + size(99) + b"\0\0", b"E_BAD_BODY MPUB failed to read message count"),
        (
            b"MPUB t\n" + size(99) + size(2) + size(1) + b"a\0",
            b"E_BAD_MESSAGE MPUB failed to read message(1) body size",
        ),
        (
            b"MPUB t\n" + size(99) + size(2) + size(1) + b"a" + size(5) + b"b",
            b"E_BAD_MESSAGE MPUB failed to read message body",
        ),
    ],
)
def test_end_within_body_is_answered_with_what_is_missing(wire, command, error):
    wire.send(command)
    wire.end()
    assert wire.error() == error
    assert wire.is_closed()


def test_commands_of_one_packet_are_answered_in_order(wire, topic):
    wire.send(pub(topic, b"a"), mpub(topic, b"b", b"c"), dpub(topic, 1, b"d"), b"NOP\n", pub(topic, b"e"))
    wire.send(b"BAD\n")
    wire.ok(4)
    assert wire.error() == b"E_INVALID invalid command BAD"


def test_commands_after_fatal_error_are_ignored(wire, connect, topic, stats):
    wire.refusal(b"BAD\n" + pub(topic, b"too late"))
    connect().publish(topic, b"other")
    assert stats(topic)["message_count"] == 1


@pytest.mark.parametrize(
    "garbage",
    [bytes(range(256)) * 8, b"\n".join(bytes([n]) for n in range(256)), b"\xff" * 99_999],
    ids=["every byte", "every byte as a line", "no newline at all"],
)
def test_garbage_ends_its_own_connection_only(wire, connect, topic, garbage):
    bystander = connect()
    wire.send(garbage)
    wire.rest()
    bystander.publish(topic, b"still here")
