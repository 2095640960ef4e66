"""Addresses as text: ``host:port``, with brackets round an IPv6 host."""

from collections.abc import Iterable
from typing import Final

_LAST_PORT: Final = 65535
# The limits of DNS.
_MAX_LABEL: Final = 63
_MAX_NAME: Final = 253


def join_host_port(host: str, port: int | str) -> str:
    """Write ``host:port``, with brackets round an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` or ``[ipv6]:port`` as a pair; ValueError when it is neither."""
    host, _, port = address.rpartition(":")
    # isdecimal() alone accepts the digits of every script.
    is_port = port.isascii() and port.isdecimal() and int(port) <= _LAST_PORT
    if not host or "/" in host or not is_port:
        raise ValueError(f"address {address!r} is not host:port")
    problem = name_problem(host)
    if problem:
        raise ValueError(f"address {address!r}: {problem}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def name_problem(host: str) -> str:
    """Why no host can have this name; empty if one can."""
    labels = host.removesuffix(".").split(".")
    if host and "" in labels:
        return "the host name has an empty part"
    if max(map(len, labels)) > _MAX_LABEL:
        return f"a part of the host name is longer than {_MAX_LABEL} characters"
    return f"the host name is longer than {_MAX_NAME} characters" if len(host) > _MAX_NAME else ""


def address_list(addresses: Iterable[str] | str) -> list[str]:
    """Addresses as a list; a single address may be given as a string. Raises TypeError."""
    listed = [addresses] if isinstance(addresses, str) else list(addresses)
    for address in listed:
        if not isinstance(address, str):
            raise TypeError(
                f"an address is text like 'localhost:4150', or there is a list of them, not {address!r}"
            )
    return listed
