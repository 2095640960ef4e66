"""The options of to_nsq."""

import os
from dataclasses import dataclass

from nsqclient.wire.headers import encode_headers
from nsqclient.wire.names import is_valid_name
from nsqcore.options.kinds import DIAL_LIST, INT, STR_LIST
from nsqcore.options.options import option
from nsqtools.options import CLIENT_OPTION, ToolOptions, address_problem, config_problem, headers_of


@dataclass(frozen=True, kw_only=True)
class ToNsqOptions(ToolOptions):
    program = "to_nsq"

    topic: str = option("", help="NSQ topic to publish to")
    nsqd_tcp_address: tuple[str, ...] = option(
        (),
        kind=DIAL_LIST,
        help="destination nsqd TCP address (may be given multiple times; each gets all messages)",
    )
    header: tuple[str, ...] = option(
        (),
        kind=STR_LIST,
        help="header of each message, as 'Key: Value' (may be given multiple times)",
    )
    delimiter: str = option("\n", help="character to split input from stdin")
    rate: int = option(0, kind=INT, help="Throttle messages to n/second. 0 to disable")
    producer_opt: tuple[str, ...] = option(
        (),
        kind=CLIENT_OPTION,
        help="option of the producer as key,value (may be given multiple times), see docs/tools.md",
    )

    @property
    def headers(self) -> dict[str, str]:
        return headers_of(self.header)

    def problem(self) -> str | None:
        if not all(name and value for name, value in self.headers.items()):
            return "--header value format should be 'Key: Value'"
        if self.header:
            try:
                encode_headers(self.headers)
            except ValueError as error:
                return f"--header {error}"
        if not self.topic:
            return "--topic required"
        if not is_valid_name(self.topic):
            return "--topic is invalid"
        if len(os.fsencode(self.delimiter)) != 1:
            return "--delimiter must be a single byte"
        if not self.nsqd_tcp_address:
            return "--nsqd-tcp-address required"
        return address_problem("nsqd-tcp", self.nsqd_tcp_address, 4150) or config_problem(self.producer_opt)
