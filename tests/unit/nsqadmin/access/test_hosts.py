import pytest

from nsqadmin.access.hosts import host_of, is_allowed

OWN = frozenset({"localhost", "admin.example.org"})


@pytest.mark.parametrize(
    "header",
    [
        "127.0.0.1:4171",
        "10.1.2.3",
        "[::1]:4171",
        "[fd00::1]",
        "localhost:4171",
        "LOCALHOST",
        "nsqadmin:4171",
        "nsqadmin.nsq.svc:4171",
        "nsqadmin.nsq.svc.cluster.local",
        "admin.example.org",
        "admin.example.org.:4171",
        "",
    ],
)
def test_own_names_addresses_and_private_names_are_allowed(header):
    assert is_allowed(header, OWN, ())


@pytest.mark.parametrize(
    "header",
    [
        "evil.example",
        "evil.example:4171",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "admin.example.org.evil.example",
        "svc.evil.example",
        "cluster.local.evil.example:80",
        "evil.example:127.0.0.1",
        "user@evil.example",
        "evil.example/.local.evil.example",
    ],
)
def test_name_that_stranger_can_point_at_us_is_refused(header):
    assert not is_allowed(header, OWN, ())


def test_operator_allows_further_names_or_any():
    assert is_allowed("nsq.example.com:443", OWN, ("nsq.example.com",))
    assert is_allowed("nsq.example.com:443", OWN, ("NSQ.example.com:443",))
    assert not is_allowed("other.example.com", OWN, ("nsq.example.com",))
    assert is_allowed("other.example.com", OWN, ("*",))


def test_host_is_read_without_port_brackets_and_final_dot():
    assert [host_of(text) for text in ("a.b:80", "[::1]:80", "A.b.", "::1", "a:b")] == [
        "a.b",
        "::1",
        "a.b",
        "::1",
        "a:b",
    ]
