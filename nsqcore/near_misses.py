"""Suggests a correction for an invalid address or an unknown name. Pure."""

from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from nsqclient.wire.address import join_host_port


def meant_address(text: str, port: int) -> str:
    """``; is HOST:PORT meant?``, or an empty text without a guess; *port* is the usual port there."""
    host, given = text, port
    if "://" in text:
        try:
            place = urlsplit(text)
            host, given = place.hostname or "", place.port or port
        except ValueError:
            return ""
    elif text.isascii() and text.isdecimal():
        host, given = "127.0.0.1", int(text)
    elif ":" in text:
        # An IPv6 address without brackets, with the port or without it.
        before, _, last = text.rpartition(":")
        if _is_ip(before) and last.isascii() and last.isdecimal():
            host, given = before, int(last)
        elif not _is_ip(text.strip("[]")):
            return ""
    if not host or "/" in host or not 0 < given < 1 << 16:
        return ""
    return f"; is {join_host_port(host.strip('[]'), given)} meant?"


def is_no_path(text: str) -> bool:
    """Whether *text*, given in place of ``host:port``, cannot be meant as the path of a socket."""
    return "://" in text or text.isdecimal() or text == "localhost" or _is_ip(text.strip("[]"))


def meant_name(name: str, known: Iterable[str]) -> str:
    """The nearest known name, or an empty text without a guess."""
    from difflib import get_close_matches  # imported here because it takes 10 ms

    near = get_close_matches(name, known, 1, 0.8)
    return near[0] if near else ""


def address_check(
    flag: str, port: int, split: Callable[[str], object]
) -> Callable[[tuple[str, ...]], str | None]:
    """A check of an option that lists addresses; *split* raises ValueError for an invalid address."""

    def check(addresses: tuple[str, ...]) -> str | None:
        for address in addresses:
            try:
                split(address)
            except ValueError as error:
                return f"--{flag} ({address}) - {error}{meant_address(address, port)}"
        return None

    return check


def _is_ip(text: str) -> bool:
    from ipaddress import ip_address  # as above

    try:
        ip_address(text)
    except ValueError:
        return False
    return True
