"""The options of the tools that use nsqd over HTTP: its addresses, TLS and the secret."""

from dataclasses import dataclass

from nsqclient.wire.durations import SECOND, Duration
from nsqclient.wire.names import is_valid_name
from nsqcore.near_misses import meant_address
from nsqcore.options.kinds import BOOL, DIAL_LIST, DURATION
from nsqcore.options.options import option
from nsqtools.options import HTTP_TIMEOUTS, ToolOptions, address_problem, one_kind_of_address


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(ToolOptions):
    topic: str = option("", help="NSQ topic")
    nsqd_http_address: tuple[str, ...] = option(
        (), kind=DIAL_LIST, help="nsqd HTTP address (may be given multiple times)"
    )
    lookupd_http_address: tuple[str, ...] = option(
        (), kind=DIAL_LIST, help="lookupd HTTP address (may be given multiple times)"
    )
    http_client_connect_timeout: Duration = option(2 * SECOND, kind=DURATION, help="timeout for HTTP connect")
    http_client_request_timeout: Duration = option(
        30 * SECOND, kind=DURATION, help="timeout for HTTP request"
    )
    http_client_tls_insecure_skip_verify: bool = option(
        False, kind=BOOL, help="skip verification of TLS certificates"
    )
    http_client_tls_root_ca_file: str = option("", help="path to CA file for HTTPS")
    http_client_tls_cert: str = option("", help="path to certificate file for HTTPS")
    http_client_tls_key: str = option("", help="path to key file for HTTPS")
    auth_secret_file: str = option(
        "", help="file with the AUTH secret to send to nsqds, for those that run with --http-auth"
    )
    auth_allow_cleartext: bool = option(
        False, kind=BOOL, help="send the AUTH secret without TLS also to nsqds that nsqlookupd named"
    )

    def cluster_problem(self) -> str | None:
        """Why no nsqd can be asked, or None."""
        if not self.topic:
            return "--topic required"
        if not is_valid_name(self.topic):
            return "--topic is invalid"
        return self.number_problem(*HTTP_TIMEOUTS) or http_problem(
            self.nsqd_http_address, self.lookupd_http_address
        )


def http_problem(nsqd: tuple[str, ...], lookupd: tuple[str, ...]) -> str | None:
    """Why these HTTP addresses cannot be used, or None."""
    return (
        one_kind_of_address("http", nsqd, lookupd)
        or _problem("nsqd", nsqd, 4151)
        or _problem("lookupd", lookupd, 4161)
    )


def _problem(kind: str, addresses: tuple[str, ...], port: int) -> str | None:
    for address in addresses:
        if address.startswith(("http://", "https://")):
            meant = meant_address(address, port)
            return f"--{kind}-http-address error - address should not contain scheme{meant}"
    return address_problem(f"{kind}-http", addresses, port)
