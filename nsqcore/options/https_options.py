"""The flags by which a daemon also serves its HTTP side over TLS; nsqd has more of them."""

import ssl
from dataclasses import dataclass
from typing import Any

from nsqcore.options.kinds import BOOL, LISTEN_LIST
from nsqcore.options.options import DaemonOptions, option
from nsqcore.options.tls_kinds import DEFAULT_MIN_VERSION, TLS_VERSION


def listening(default: str = "") -> Any:
    """Declare where a daemon listens for HTTP."""
    return option(
        (default,) if default else (),
        kind=LISTEN_LIST,
        help="address to listen on for HTTP clients (<addr>:<port> or a path, may be given multiple times)",
    )


@dataclass(frozen=True, kw_only=True)
class HttpsOptions(DaemonOptions):
    http_address: tuple[str, ...] = listening()
    https_address: str = option("", help="<addr>:<port> to listen on for HTTPS clients")
    tls_cert: str = option("", help="path to certificate file")
    tls_key: str = option("", help="path to key file")
    tls_required: bool = option(
        False, kind=BOOL, help="answer every plain HTTP request with 403 and the port of HTTPS"
    )
    tls_min_version: ssl.TLSVersion = option(
        DEFAULT_MIN_VERSION,
        kind=TLS_VERSION,
        help="minimum TLS version acceptable ('tls1.0', 'tls1.1', 'tls1.2', or 'tls1.3')",
    )

    def problem(self) -> str | None:
        if self.tls_required and not (self.has_certificate and self.https_address):
            return "cannot require TLS client connections without TLS key and cert"
        return None

    @property
    def has_certificate(self) -> bool:
        return bool(self.tls_cert or self.tls_key)
