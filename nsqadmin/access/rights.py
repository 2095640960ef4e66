"""Who makes a request and what they may do, decided from headers, cookies and addresses alone."""

import time
from collections.abc import Callable, Mapping
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final

from nsqadmin.access.roles import Person, Role, RoleGrant, grants_of, role_of
from nsqadmin.access.sessions import Sessions
from nsqadmin.access.tokens import TokenFile
from nsqadmin.options import NsqadminOptions
from nsqcore.http.api import ApiError

SESSION_COOKIE: Final = "nsqadmin_session"


class Rights:
    """Determines the person of each request and their permissions."""

    def __init__(
        self, options: Callable[[], NsqadminOptions], tokens: TokenFile, sessions: Sessions | None
    ) -> None:
        self._options = options
        self._tokens = tokens
        self.sessions = sessions

    @property
    def signs_in(self) -> bool:
        return self.sessions is not None

    def person(self, request: Any) -> Person:
        """Return who makes the request. Raises ApiError for an unknown token, so that its sender notices."""
        headers = request.headers
        scheme, _, secret = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._tokens.path:
            self.grants()  # refuses everybody if the file cannot be read
            name = self._tokens.named(secret.strip())
            if not name:
                raise ApiError(401, "INVALID_TOKEN")
            return Person(name, (), "token")
        if self.sessions is not None:
            # Where people sign in here, no proxy in front is needed, so the header could come from anybody.
            return self.sessions.person(request.raw.cookies.get(SESSION_COOKIE, ""), time.time()) or Person()
        options = self._options()
        user = _text(headers.get(options.acl_http_header, ""))
        if not user:
            return Person()
        groups = options.acl_groups_http_header and _text(headers.get(options.acl_groups_http_header, ""))
        return Person(user, tuple(filter(None, map(str.strip, groups.split(",")))), "header")

    def grants(self) -> list[RoleGrant]:
        """Return what everybody may do. Raises ApiError if the file of tokens has become unreadable."""
        options = self._options()
        try:
            tokens = [token.grant for token in self._tokens.tokens]
        except (OSError, ValueError) as error:
            # Until then every request is refused, because the file may have changed permissions.
            raise ApiError(503, f"TOKEN_FILE_UNUSABLE: {_reason(error)}") from error
        return grants_of(options.roles, options.admin_users, tokens, signs_in=self.signs_in)

    def may(self, request: Any, least: Role, topic: str = "") -> bool:
        """Tell whether the person who makes the request has the role *least* or a higher one."""
        return role_of(self.person(request), self.grants(), topic) >= least

    def role(self, request: Any) -> str:
        """Return the highest role of the person who makes the request, for any topic, in lower case."""
        person = self.person(request)
        return max((one.role for one in self.grants() if one.is_for(person)), default=Role.NONE).name.lower()

    def may_somewhere(self, request: Any, least: Role) -> bool:
        """Tell whether the person who makes the request has at least the role *least* for any topic."""
        person = self.person(request)
        return any(grant.role >= least and grant.is_for(person) for grant in self.grants())


def _text(value: str) -> str:
    """Return a header's value as text that can be stored: a proxy may send names that are no UTF-8."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _reason(error: OSError | ValueError) -> str:
    """The text leaves out the path of the file, which is not public."""
    return (error.strerror or "") if isinstance(error, OSError) else str(error)


def is_open(options: NsqadminOptions) -> bool:
    """Return whether everybody may do everything, because no grant exists."""
    return not (options.admin_users or options.roles or options.api_token_file or options.oidc_issuer)


def is_secure(request: Any) -> bool:
    """Tell whether the browser sent the request over TLS, to us or to the proxy in front."""
    is_tls = request.raw.get_extra_info("ssl_object") is not None
    return is_tls or "https" in {request.headers.get("X-Forwarded-Proto"), request.headers.get("X-Scheme")}


Headers = Mapping[str, str]


def parse_cidr(text: str) -> IPv4Network | IPv6Network | None:
    """Read ``127.0.0.1/8``; empty excludes no address. Raises ValueError if it is no CIDR."""
    if not text:
        return None
    if "/" not in text:
        raise ValueError(f"invalid CIDR address: {text}")
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise ValueError(f"invalid CIDR address: {text}") from error


def is_inside(network: IPv4Network | IPv6Network | None, address: str) -> bool:
    """Tell whether the peer *address* lies in *network*. Raises ValueError if it is not an IP address."""
    if network is None:
        return True
    peer = ip_address(address)
    if isinstance(peer, IPv6Address) and peer.ipv4_mapped is not None:
        peer = peer.ipv4_mapped
    return peer in network
