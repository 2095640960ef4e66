"""Who may change things, and from where: decided on headers and addresses alone."""

from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from nsqadmin.options import NsqadminOptions

Headers = Mapping[str, str]


def is_admin(options: NsqadminOptions, headers: Headers) -> bool:
    """Tell whether the user a proxy in front names is an admin; without a list of admins everybody is."""
    return not options.admin_users or headers.get(options.acl_http_header, "") in options.admin_users


def parse_cidr(text: str) -> IPv4Network | IPv6Network | None:
    """Read ``127.0.0.1/8``; empty means that nobody is excluded. ValueError when it is no CIDR address."""
    if not text:
        return None
    if "/" not in text:
        raise ValueError(f"invalid CIDR address: {text}")
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise ValueError(f"invalid CIDR address: {text}") from error


def is_inside(network: IPv4Network | IPv6Network | None, address: str) -> bool:
    """Tell whether the peer *address* lies in *network*; ValueError when it is not an IP address."""
    if network is None:
        return True
    peer = ip_address(address)
    if isinstance(peer, IPv6Address) and peer.ipv4_mapped is not None:
        peer = peer.ipv4_mapped
    return peer in network
