"""Which nsqlookupd to ask, and how its answer is read."""

import pytest

from nsqclient._addresses import AddressBook
from nsqclient._config import Config
from nsqclient._lookups import lookup_url, producer_addresses


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("lookup:4161", "http://lookup:4161/lookup"),
        ("http://lookup:4161", "http://lookup:4161/lookup"),
        ("http://lookup:4161/", "http://lookup:4161/lookup"),
        ("https://proxy/nsq/lookup?token=1", "https://proxy/nsq/lookup?token=1"),
        ("[::1]:4161", "http://[::1]:4161/lookup"),
    ],
)
def test_address_or_url_says_where_to_ask(address, url):
    assert lookup_url(address) == url


@pytest.mark.parametrize("address", ["lookup", "lookup:port", ":4161", "lookup:70000"])
def test_address_without_host_and_port_is_refused(address):
    with pytest.raises(ValueError, match="is not host:port"):
        lookup_url(address)
    with pytest.raises(ValueError, match="is not host:port"):
        AddressBook([address], [], Config(), lambda: None)


def test_producers_are_taken_once_each():
    answer = {
        "producers": [
            {"broadcast_address": "a", "tcp_port": 4150},
            {"broadcast_address": "::1", "tcp_port": 4150},
            {"broadcast_address": "a", "tcp_port": 4150},
        ]
    }

    assert producer_addresses(answer) == ["a:4150", "[::1]:4150"]


@pytest.mark.parametrize(
    "answer", [None, [], {}, {"producers": [{}]}, {"producers": "a"}, {"producers": ["a"]}]
)
def test_answer_of_another_shape_is_refused(answer):
    with pytest.raises(ValueError, match="not one of /lookup"):
        producer_addresses(answer)
