"""The options of nsq_to_nsq."""

from dataclasses import dataclass

from nsqclient.wire.names import is_valid_name
from nsqcore.options.kinds import DIAL_LIST, INT, STR_LIST
from nsqcore.options.options import option
from nsqtools.hosts import HOST_POOL, MODES
from nsqtools.nsq_to_nsq.filters import JsonFilter
from nsqtools.options import CLIENT_OPTION, ConsumingOptions, address_problem, config_problem


@dataclass(frozen=True, kw_only=True)
class ToNsqdOptions(ConsumingOptions):
    program = "nsq_to_nsq"

    topic: tuple[str, ...] = option((), kind=STR_LIST, help="nsq topic (may be given multiple times)")
    channel: str = option("nsq_to_nsq", help="nsq channel")
    destination_nsqd_tcp_address: tuple[str, ...] = option(
        (), kind=DIAL_LIST, help="destination nsqd TCP address (may be given multiple times)"
    )
    destination_topic: str = option(
        "", help="use this destination topic for all consumed topics (default is consumed topic name)"
    )
    mode: str = option(HOST_POOL, help=f"which destination gets a message: {', '.join(MODES)}")
    status_every: int = option(
        250, kind=INT, help="the # of requests between logging status (per destination), 0 disables"
    )
    require_json_field: str = option("", help="for JSON messages: only pass messages that contain this field")
    require_json_value: str = option(
        "", help="for JSON messages: only pass messages in which the required field has this value"
    )
    whitelist_json_field: tuple[str, ...] = option(
        (), kind=STR_LIST, help="for JSON messages: pass this field (may be given multiple times)"
    )
    producer_opt: tuple[str, ...] = option(
        (),
        kind=CLIENT_OPTION,
        help="option of the producers as key,value (may be given multiple times), see docs/tools.md",
    )

    @property
    def filter(self) -> JsonFilter:
        return JsonFilter(self.require_json_field, self.require_json_value, self.whitelist_json_field)

    def problem(self) -> str | None:
        if not self.topic or not self.channel:
            return "--topic and --channel are required"
        if not all(map(is_valid_name, self.topic)):
            return "--topic is invalid"
        if self.destination_topic and not is_valid_name(self.destination_topic):
            return "--destination-topic is invalid"
        if not is_valid_name(self.channel):
            return "--channel is invalid"
        if problem := self.source_problem():
            return problem
        if not self.destination_nsqd_tcp_address:
            return "--destination-nsqd-tcp-address required"
        return self._loop_problem() or self._value_problem()

    def _loop_problem(self) -> str | None:
        """Refuse to copy messages to where they are read, because they would be copied forever."""
        both = set(self.nsqd_tcp_address) & set(self.destination_nsqd_tcp_address)
        if both and (not self.destination_topic or self.destination_topic in self.topic):
            return f"{min(both)} is source and destination of the same topic: messages would go round forever"
        return None

    def _value_problem(self) -> str | None:
        if self.mode not in MODES:
            return f"--mode {self.mode} is none of {', '.join(MODES)}"
        if self.require_json_value and not self.require_json_field:
            return "--require-json-value needs --require-json-field"
        return (
            self.number_problem(not_negative=("status_every",))
            or self.consumer_problem()
            or address_problem("destination-nsqd-tcp", self.destination_nsqd_tcp_address, 4150)
            or config_problem(self.producer_opt)
        )
