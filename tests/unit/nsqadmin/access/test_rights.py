import pytest

from nsqadmin.access.rights import is_inside, parse_cidr


def test_network_may_be_written_with_host_address():
    network = parse_cidr("127.0.0.1/8")

    assert is_inside(network, "127.9.9.9")
    assert is_inside(network, "::ffff:127.0.0.1")
    assert not is_inside(network, "::1")
    assert not is_inside(network, "10.0.0.1")


def test_empty_network_excludes_no_address():
    assert is_inside(parse_cidr(""), "203.0.113.7")


@pytest.mark.parametrize("text", ["foo", "127.0.0.1", "127.0.0.1/99"])
def test_invalid_network_is_refused(text):
    with pytest.raises(ValueError, match="invalid CIDR address: "):
        parse_cidr(text)


def test_peer_that_is_no_address_is_error():
    with pytest.raises(ValueError, match="@"):
        is_inside(parse_cidr("127.0.0.1/8"), "@")
