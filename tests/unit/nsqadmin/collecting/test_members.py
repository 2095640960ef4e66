import pytest

from nsqadmin.collecting.members import MemberList, is_reachable, listed, listed_now
from nsqcore.cluster.models import NodeInfo


def at(address):
    return NodeInfo(address, "host", 4150, 4151, "1.3.0")


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "[fe80::1]", "fe80::1%eth0"])
def test_link_local_address_is_not_asked(address):
    register = MemberList("l:4161", (at(address), at("10.0.0.1")))

    assert not is_reachable(at(address))
    assert [one.broadcast_address for one in listed([register])] == ["10.0.0.1"]
    assert [one.broadcast_address for one in listed_now([register])] == ["10.0.0.1"]


@pytest.mark.parametrize("address", ["10.0.0.1", "nsqd-0.nsqd", "2001:db8::1", "127.0.0.1"])
def test_other_addresses_are_asked(address):
    assert is_reachable(at(address))
