"""The options of nsq_stat."""

from dataclasses import dataclass
from typing import Final

from nsqclient.wire.durations import SECOND, Duration
from nsqcore.options.kinds import DIAL_LIST, DURATION, Kind, parse_int
from nsqcore.options.options import option
from nsqtools.cluster_options import http_problem
from nsqtools.options import HTTP_TIMEOUTS, ToolOptions

# Unlike other numbers it has no default: without it nsq_stat reports forever.
COUNT: Final = Kind("value", parse_int, parse_int)


@dataclass(frozen=True, kw_only=True)
class StatOptions(ToolOptions):
    program = "nsq_stat"

    topic: str = option("", help="NSQ topic")
    channel: str = option("", help="NSQ channel")
    interval: Duration = option(
        2 * SECOND, kind=DURATION, help="duration of time between polling/printing output"
    )
    count: int | None = option(None, kind=COUNT, help="number of reports")
    http_client_connect_timeout: Duration = option(2 * SECOND, kind=DURATION, help="timeout for HTTP connect")
    http_client_request_timeout: Duration = option(5 * SECOND, kind=DURATION, help="timeout for HTTP request")
    nsqd_http_address: tuple[str, ...] = option(
        (), kind=DIAL_LIST, help="nsqd HTTP address (may be given multiple times)"
    )
    lookupd_http_address: tuple[str, ...] = option(
        (), kind=DIAL_LIST, help="lookupd HTTP address (may be given multiple times)"
    )

    def problem(self) -> str | None:
        if not self.topic or not self.channel:
            return "--topic and --channel are required"
        counted = () if self.count is None else ("count",)
        return self.number_problem("interval", *HTTP_TIMEOUTS, *counted) or http_problem(
            self.nsqd_http_address, self.lookupd_http_address
        )
