"""The bytes of each command, and the arguments that are refused before they reach nsqd."""

import json

import pytest

from nsqclient.wire import commands

ID = b"0123456789abcdef"


def test_commands_without_body():
    assert commands.sub("orders", "billing#ephemeral") == b"SUB orders billing#ephemeral\n"
    assert commands.rdy(0) == b"RDY 0\n"
    assert commands.rdy(2500) == b"RDY 2500\n"
    assert commands.fin(ID) == b"FIN 0123456789abcdef\n"
    assert commands.req(ID, 1500) == b"REQ 0123456789abcdef 1500\n"
    assert commands.touch(ID) == b"TOUCH 0123456789abcdef\n"


def test_identify_carries_its_settings_as_sized_json():
    command = commands.identify({"client_id": "é", "feature_negotiation": True})

    head, size, body = command[:9], command[9:13], command[13:]
    assert head == b"IDENTIFY\n"
    assert int.from_bytes(size) == len(body)
    assert json.loads(body) == {"client_id": "é", "feature_negotiation": True}


def test_publish_sizes_its_body():
    assert commands.pub("t", b"ab\n") == b"PUB t\n\x00\x00\x00\x03ab\n"
    assert commands.dpub("t", b"ab", 250) == b"DPUB t 250\n\x00\x00\x00\x02ab"


def test_multi_publish_sizes_all_and_each():
    assert commands.mpub("t", [b"a", b"bcd"]) == (
        b"MPUB t\n"
        b"\x00\x00\x00\x10"  # count 4, sizes 2 x 4, bodies 1 + 3
        b"\x00\x00\x00\x02"
        b"\x00\x00\x00\x01a"
        b"\x00\x00\x00\x03bcd"
    )


@pytest.mark.parametrize("name", ["", "a b", "a\n", "x" * 65, "ö", "a#ephemeralx"])
def test_bad_name_is_refused_here_so_that_connection_lives(name):
    for build in (
        lambda: commands.pub(name, b"x"),
        lambda: commands.mpub(name, [b"x"]),
        lambda: commands.dpub(name, b"x", 0),
        lambda: commands.sub(name, "c"),
    ):
        with pytest.raises(ValueError, match=r"topic name .* is not valid"):
            build()
    with pytest.raises(ValueError, match=r"channel name .* is not valid"):
        commands.sub("t", name)


def test_empty_message_is_refused():
    for build in (
        lambda: commands.pub("t", b""),
        lambda: commands.mpub("t", [b"x", b""]),
        lambda: commands.dpub("t", b"", 0),
    ):
        with pytest.raises(ValueError, match="must not be empty"):
            build()
    with pytest.raises(ValueError, match="at least one"):
        commands.mpub("t", [])


def test_negative_numbers_and_foreign_ids_are_refused():
    with pytest.raises(ValueError, match="RDY count -1 is negative"):
        commands.rdy(-1)
    with pytest.raises(ValueError, match="delay -1 is negative"):
        commands.req(ID, -1)
    with pytest.raises(ValueError, match="not of 16 bytes"):
        commands.fin(b"short")
