"""The options of nsq_to_http."""

from dataclasses import dataclass
from typing import Final

from nsqclient.wire.durations import SECOND, Duration
from nsqclient.wire.names import is_valid_name
from nsqcore.options.kinds import DURATION, FLOAT, INT, STR_LIST
from nsqcore.options.options import option
from nsqtools.hosts import HOST_POOL, MODES
from nsqtools.nsq_to_http.headers import fits, header_problem
from nsqtools.options import HTTP_TIMEOUTS, ConsumingOptions, headers_of

DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"

ALL: Final = ("all", "multicast")
"""The modes that send each message to every address."""


def is_http(address: str) -> bool:
    """Whether requests can be made to an address; ``%s`` in it stands for anything."""
    # Loaded here, because --help and --version do not need it.
    from yarl import URL

    try:
        url = URL(address.replace("%s", "x"), encoded=True)
        return url.scheme in {"http", "https"} and bool(url.host) and url.port != 0
    except ValueError:  # a wrong port is found at the request
        return False


@dataclass(frozen=True, kw_only=True)
class ToHttpOptions(ConsumingOptions):
    program = "nsq_to_http"

    topic: str = option("", help="nsq topic")
    channel: str = option("nsq_to_http", help="nsq channel")
    post: tuple[str, ...] = option(
        (),
        kind=STR_LIST,
        help="HTTP address to make a POST request to.  data will be in the body"
        " (may be given multiple times)",
    )
    get: tuple[str, ...] = option(
        (),
        kind=STR_LIST,
        help="HTTP address to make a GET request to. '%s' will be replaced with data"
        " (may be given multiple times)",
    )
    header: tuple[str, ...] = option(
        (),
        kind=STR_LIST,
        help="Custom header for HTTP requests, as 'Key: Value' (may be given multiple times)",
    )
    content_type: str = option(DEFAULT_CONTENT_TYPE, help="the Content-Type used for POST requests")
    mode: str = option(
        HOST_POOL, help=f"which address gets a message: {', '.join(MODES)}, or all of them: {', '.join(ALL)}"
    )
    n: int = option(100, kind=INT, help="number of concurrent publishers")
    sample: float = option(1.0, kind=FLOAT, help="share of messages to publish (float b/w 0 -> 1)")
    status_every: int = option(
        250, kind=INT, help="the # of requests between logging status (per handler), 0 disables"
    )
    http_client_connect_timeout: Duration = option(2 * SECOND, kind=DURATION, help="timeout for HTTP connect")
    http_client_request_timeout: Duration = option(
        20 * SECOND, kind=DURATION, help="timeout for HTTP request"
    )

    @property
    def headers(self) -> dict[str, str]:
        return headers_of(self.header)

    def problem(self) -> str | None:
        if not all(name and value for name, value in self.headers.items()):
            return "--header value format should be 'Key: Value'"
        if problem := header_problem(self.headers):
            return problem
        if not self.topic or not self.channel:
            return "--topic and --channel are required"
        if not is_valid_name(self.topic):
            return "invalid topic name"
        if not is_valid_name(self.channel):
            return "invalid channel name"
        if self.content_type != DEFAULT_CONTENT_TYPE and not self.post:
            return "--content-type only used with --post"
        if not self.content_type:
            return "--content-type requires a value when used"
        if not fits("Content-Type", self.content_type):
            return "--content-type is not one line"
        if problem := self.source_problem() or self._address_problem():
            return problem
        if not 0 <= self.sample <= 1:
            return "ERROR: --sample must be between 0.0 and 1.0"
        return (
            self.number_problem("n", not_negative=("status_every",))
            or self.number_problem(*HTTP_TIMEOUTS)
            or self.consumer_problem()
        )

    def _address_problem(self) -> str | None:
        if not self.get and not self.post:
            return "--get or --post required"
        if self.get and self.post:
            return "use --get or --post not both"
        if any(address.count("%s") != 1 for address in self.get):
            return "invalid GET address - must be a printf string"
        for address in (*self.get, *self.post):
            if not is_http(address):
                return f"{address} is not an http:// or https:// address"
        if self.mode not in (*MODES, *ALL):
            return f"--mode {self.mode} is none of {', '.join((*MODES, *ALL))}"
        return None
