"""Splits addresses as flags give them, or says what is wrong with them. Pure."""

from nsqclient.wire.address import name_problem


def split_host_port(address: str) -> tuple[str, str]:
    """Cut ``host:port``; brackets of an IPv6 host are removed. ValueError says what is wrong."""
    host, port = _cut(address)
    problem = name_problem(host)
    if problem:
        raise ValueError(f"address {address}: {problem}")
    return host, port


def _cut(address: str) -> tuple[str, str]:
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        if not bracket:
            raise ValueError(f"address {address}: missing ']' in address")
        if not rest.startswith(":"):
            raise ValueError(f"address {address}: missing port in address")
        return host, rest[1:]
    host, colon, port = address.rpartition(":")
    if not colon:
        raise ValueError(f"address {address}: missing port in address")
    if ":" in host:
        raise ValueError(f"address {address}: too many colons in address")
    return host, port


def is_unix_path(address: str) -> bool:
    """Tell whether *address* can only be the path of a unix socket."""
    try:
        _cut(address)
    except ValueError:
        return True
    return False
