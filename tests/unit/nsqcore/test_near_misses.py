"""Guesses of what was meant by a wrong address or name."""

import pytest

from nsqcore.near_misses import address_check, is_no_path, meant_address, meant_name
from nsqcore.process.addresses import split_host_port


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("http://10.0.0.1:4161", "10.0.0.1:4161"),
        ("https://nsq.example/", "nsq.example:4160"),
        ("http://[::1]:4161/nodes", "[::1]:4161"),
        ("10.0.0.1", "10.0.0.1:4160"),
        ("localhost", "localhost:4160"),
        ("::1", "[::1]:4160"),
        ("[::1]", "[::1]:4160"),
        ("::1:4150", "[::1]:4150"),
        ("2001:db8:0:0:0:0:0:1", "[2001:db8:0:0:0:0:0:1]:4160"),
        ("4150", "127.0.0.1:4150"),
    ],
)
def test_address_is_guessed(text, meant):
    assert meant_address(text, 4160) == f"; is {meant} meant?"


@pytest.mark.parametrize(
    "text", ["", "a:b:c", "host:", "/run/nsqd.sock", "http://", "http://[::1", "0", "99999"]
)
def test_address_without_near_miss_has_no_guess(text):
    assert meant_address(text, 4160) == ""


@pytest.mark.parametrize("text", ["4150", "127.0.0.1", "::1", "[::1]", "localhost", "http://a:1"])
def test_mistyped_address_makes_no_socket_file(text):
    assert is_no_path(text)


@pytest.mark.parametrize("text", ["/run/nsqd.sock", "nsqd.sock", "./4150"])
def test_path_is_path(text):
    assert not is_no_path(text)


def test_nearest_name_is_guessed():
    assert meant_name("tcp-adress", ["tcp-address", "http-address"]) == "tcp-address"
    assert meant_name("bogus", ["tcp-address"]) == ""


def test_list_of_addresses_is_checked_one_by_one():
    check = address_check("lookupd-tcp-address", 4160, split_host_port)

    assert check(("a:1", "b:2")) is None
    assert check(("a:1", "b")) == (
        "--lookupd-tcp-address (b) - address b: missing port in address; is b:4160 meant?"
    )
