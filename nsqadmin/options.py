"""All options of nsqadmin."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from posixpath import normpath

from nsqadmin.patterns import placeholders
from nsqclient.wire.durations import SECOND, Duration
from nsqcore.options.https_options import HttpsOptions, listening
from nsqcore.options.kinds import BOOL, DIAL_LIST, DURATION, STR_LIST
from nsqcore.options.options import option
from nsqcore.process.logs import Log, LogLevel


@dataclass(frozen=True, kw_only=True)
class NsqadminOptions(HttpsOptions):
    log_prefix: str = option("[nsqadmin] ", help="log message prefix")
    http_address: tuple[str, ...] = listening("0.0.0.0:4171")
    https_address: str = option("0.0.0.0:4172", help="<addr>:<port> to listen on for HTTPS clients")
    base_path: str = option("/", help="URL base path")
    dev_static_dir: str = option("", help="serve static assets from this folder (development use only)")
    nsqlookupd_http_addresses: tuple[str, ...] = option(
        (),
        flag="lookupd-http-address",
        kind=DIAL_LIST,
        help="lookupd HTTP address (may be given multiple times)",
    )
    nsqd_http_addresses: tuple[str, ...] = option(
        (), flag="nsqd-http-address", kind=DIAL_LIST, help="nsqd HTTP address (may be given multiple times)"
    )
    http_client_connect_timeout: Duration = option(2 * SECOND, kind=DURATION, help="timeout for HTTP connect")
    http_client_request_timeout: Duration = option(5 * SECOND, kind=DURATION, help="timeout for HTTP request")
    http_client_tls_insecure_skip_verify: bool = option(
        False, kind=BOOL, help="configure the HTTP client to skip verification of TLS certificates"
    )
    http_client_tls_root_ca_file: str = option("", help="path to CA file for the HTTP client")
    http_client_tls_cert: str = option("", help="path to certificate file for the HTTP client")
    http_client_tls_key: str = option("", help="path to key file for the HTTP client")
    auth_secret_file: str = option(
        "",
        help="file with the AUTH secret to send to nodes, for nsqds that run with --http-auth",
    )
    auth_allow_cleartext: bool = option(
        False, kind=BOOL, help="send the AUTH secret without TLS also to nodes that nsqlookupd named"
    )
    collect_interval: Duration = option(
        2 * SECOND, kind=DURATION, help="how often nsqadmin asks each nsqd and nsqlookupd"
    )
    history: bool = option(
        True, kind=BOOL, help="keep statistics of the last hour and day, also while no page is open"
    )
    history_file: str = option(
        "", help="file for the history, 64 MiB; without a file the history is lost when nsqadmin ends"
    )
    audit_file: str = option(
        "", help="file to which every change that an admin makes is appended, one JSON object per line"
    )
    alert_http_endpoint: str = option(
        "", help="HTTP endpoint (fully qualified) to which the beginning and end of each problem is POSTed"
    )
    alert_format: str = option(
        "json", help='format of what is POSTed to --alert-http-endpoint: "json" or "slack"'
    )
    alert_limits: tuple[str, ...] = option(
        (),
        flag="alert-limit",
        kind=STR_LIST,
        help="PATTERN:depth:N reports a problem when a channel of a matching topic has more than N waiting"
        " messages; PATTERN:off never reports one (may be given multiple times; the first match counts)",
    )
    graphite_url: str = option("", help="graphite HTTP address")
    proxy_graphite: bool = option(False, kind=BOOL, help="proxy HTTP requests to graphite")
    trace_url: str = option(
        "",
        help="URL of the trace of a message, in which names of headers in braces are replaced by"
        " their values, or {trace_id} of the header traceparent",
    )
    statsd_prefix: str = option(
        "nsq.%s", help="prefix used for keys sent to statsd (%s for host replacement)"
    )
    statsd_counter_format: str = option(
        "stats.counters.%s.count", help="the counter stats key formatting applied by statsd"
    )
    statsd_gauge_format: str = option(
        "stats.gauges.%s", help="the gauge stats key formatting applied by statsd"
    )
    statsd_interval: Duration = option(
        60 * SECOND, kind=DURATION, help="time interval nsqd is configured to push to statsd"
    )
    notification_http_endpoint: str = option(
        "", help="HTTP endpoint (fully qualified) to which POST notifications of admin actions will be sent"
    )
    allow_config_from_cidr: str = option(
        "127.0.0.1/8", help="a CIDR from which to allow HTTP requests to the /config endpoint"
    )
    acl_http_header: str = option(
        "X-Forwarded-User", help="HTTP header to check for authenticated admin users"
    )
    acl_groups_http_header: str = option(
        "", help="HTTP header with the groups of the authenticated user, separated by commas"
    )
    roles: tuple[str, ...] = option(
        (),
        flag="role",
        kind=STR_LIST,
        help="ROLE:WHO[:TOPICS], with viewer, reader, operator or admin for user=NAME, group=NAME or *"
        " (may be given multiple times; all others may then do nothing)",
    )
    api_token_file: str = option(
        "", help="file with the tokens of programs, one line NAME ROLE SHA256 [TOPICS] for each"
    )
    oidc_issuer: str = option("", help="address of the OpenID Connect provider where people sign in")
    oidc_client_id: str = option("", help="name under which this nsqadmin is registered there")
    oidc_client_secret_file: str = option("", help="file with the secret of that registration")
    oidc_scopes: str = option("openid profile email", help="scopes to ask the provider for")
    oidc_name_claim: str = option("preferred_username", help="claim that names the user")
    oidc_groups_claim: str = option("groups", help="claim that lists the groups of the user")
    oidc_redirect_url: str = option(
        "",
        help="address to which the provider sends people back (by default /signed-in where they were)",
    )
    session_secret_file: str = option(
        "",
        help="file with the secret that signs sessions; without one all sessions end with nsqadmin",
    )
    session_lifetime: Duration = option(8 * 3600 * SECOND, kind=DURATION, help="how long a session lasts")
    allowed_hosts: tuple[str, ...] = option(
        (),
        kind=STR_LIST,
        help="host name by which browsers may reach this nsqadmin, besides its own names and addresses"
        " (may be given multiple times; * allows any)",
    )
    admin_users: tuple[str, ...] = option(
        (),
        flag="admin-user",
        kind=STR_LIST,
        help="admin user (may be given multiple times; if given, only these may change anything)",
    )

    def problem(self) -> str | None:
        if not self.nsqd_http_addresses and not self.nsqlookupd_http_addresses:
            return "--nsqd-http-address or --lookupd-http-address required"
        if self.nsqd_http_addresses and self.nsqlookupd_http_addresses:
            return "use --nsqd-http-address or --lookupd-http-address not both"
        if self.http_client_tls_cert and not self.http_client_tls_key:
            return "--http-client-tls-key must be specified with --http-client-tls-cert"
        if self.http_client_tls_key and not self.http_client_tls_cert:
            return "--http-client-tls-cert must be specified with --http-client-tls-key"
        if self.collect_interval <= 0:
            return "--collect-interval must be longer than 0s"
        if bool(self.oidc_issuer) != bool(self.oidc_client_id):
            return "--oidc-issuer and --oidc-client-id must be given together"
        if self.oidc_issuer and not self.oidc_issuer.startswith(("https://", "http://")):
            return "--oidc-issuer must be an http or https address"
        if self.session_lifetime <= 0:
            return "--session-lifetime must be longer than 0s"
        if self.trace_url and (wrong := _wrong_pattern(self.trace_url)):
            return f"--trace-url {wrong}, as https://traces.example/{{trace_id}} is"
        if self.alert_format not in {"json", "slack"}:
            return f"--alert-format must be json or slack, not {self.alert_format}"
        return super().problem()

    @property
    def prefix(self) -> str:
        """The beginning of every path: empty, or ``/nsq`` for any spelling of ``-base-path nsq/``."""
        path = normpath("/" + self.base_path.lstrip("/"))
        return "" if path == "/" else path


def _wrong_pattern(url: str) -> str:
    """Say what is wrong with an address with names in braces; empty if it is right."""
    if not url.startswith(("https://", "http://")):
        return "must be an http or https address"
    try:
        names = placeholders(url)
    except ValueError:
        names = []
    return "" if names else "must have the name of a header in braces"


class LiveOptions:
    """The options in force. ``/config`` swaps the whole object; readers ask for ``current`` each time."""

    def __init__(self, options: NsqadminOptions, log: Log) -> None:
        self.current = options
        self._log = log

    def set_log_level(self, level: LogLevel) -> None:
        self.current = replace(self.current, log_level=level)
        self._log.set_level(level)

    def set_lookupds(self, addresses: tuple[str, ...]) -> None:
        self.current = replace(self.current, nsqlookupd_http_addresses=addresses)


OptionsNow = Callable[[], NsqadminOptions]
