"""Addresses as text: ``host:port``, with brackets round an IPv6 host."""

from typing import Final

_LAST_PORT: Final = 65535


def join_host_port(host: str, port: int | str) -> str:
    """Write ``host:port``, with brackets round an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` or ``[ipv6]:port`` as a pair; ValueError when it is neither."""
    host, colon, port = address.rpartition(":")
    # isdecimal alone takes digits of every script.
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > _LAST_PORT:
        raise ValueError(f"address {address!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)
