"""Addresses as text."""

import pytest

from nsqclient.wire.address import join_host_port, split_address


@pytest.mark.parametrize(("host", "address"), [("::1", "[::1]:4150"), ("10.0.0.1", "10.0.0.1:4150")])
def test_ipv6_host_gets_brackets_and_loses_them(host, address):
    assert join_host_port(host, 4150) == address
    assert split_address(address) == (host, 4150)


@pytest.mark.parametrize("address", ["", "host", "host:", ":4150", "host:x", "host:-1", "host:65536", "h:٣"])
def test_address_without_port_is_refused(address):
    with pytest.raises(ValueError, match="is not host:port"):
        split_address(address)
