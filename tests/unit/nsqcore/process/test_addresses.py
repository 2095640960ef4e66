import pytest

from nsqcore.process.addresses import is_unix_path, split_host_port


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:4150", ("127.0.0.1", "4150")),
        (":4150", ("", "4150")),
        ("nsqd-0.nsqd:4150", ("nsqd-0.nsqd", "4150")),
        ("[::1]:4150", ("::1", "4150")),
        ("host:", ("host", "")),
    ],
)
def test_address_is_cut_into_host_and_port(address, parts):
    assert split_host_port(address) == parts


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("nohost", "address nohost: missing port in address"),
        ("", "address : missing port in address"),
        ("::1:4150", "address ::1:4150: too many colons in address"),
        ("[::1]", "address [::1]: missing port in address"),
        ("[::1:4150", "address [::1:4150: missing ']' in address"),
        ("a..b:1", "address a..b:1: the host name has an empty part"),
        (f"{'a' * 64}:1", f"address {'a' * 64}:1: a part of the host name is longer than 63 characters"),
        (f"{'a.' * 127}:1", f"address {'a.' * 127}:1: the host name is longer than 253 characters"),
    ],
)
def test_invalid_address_is_named(address, reason):
    with pytest.raises(ValueError) as refused:
        split_host_port(address)

    assert str(refused.value) == reason


def test_unix_path_is_neither_host_nor_port():
    assert is_unix_path("/run/nsqd.sock")
    assert is_unix_path("nsqd.sock")
    assert not is_unix_path("127.0.0.1:4150")
    assert not is_unix_path("a..b:4150")
