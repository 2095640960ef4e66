"""Under which names a browser may reach nsqadmin; PURE.

A page of another site can point its own name at our address (DNS rebinding); the browser then treats it as
the same origin as nsqadmin. It cannot own a name that only exists here, and it cannot be an IP address.
"""

from ipaddress import ip_address
from typing import Final

ANY: Final = "*"

# No public name ends in these: they are reserved for private use, or are Kubernetes' own.
_PRIVATE: Final = (".local", ".internal", ".localhost", ".svc")


def host_of(header: str) -> str:
    """Return the host of a ``Host`` header in lower case, without port, brackets and final dot."""
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    if colon and port.isdigit() and ":" not in name:
        host = name
    return host.rstrip(".")


def is_allowed(header: str, own: frozenset[str], allowed: tuple[str, ...]) -> bool:
    """Tell whether a request with this ``Host`` may be answered.

    Allowed are IP addresses, names that no outsider can own, the names of this machine (*own*), and the
    names that the operator *allowed*. A request without the header does not come from a browser.
    """
    host = host_of(header)
    if not host or ANY in allowed or host in own:
        return True
    if "." not in host or host.endswith(_PRIVATE):
        return True
    if any(host == host_of(name) for name in allowed):
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
