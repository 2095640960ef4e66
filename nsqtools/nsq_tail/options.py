"""The options of nsq_tail."""

from dataclasses import dataclass

from nsqclient.wire.names import is_valid_name
from nsqcore.options.kinds import BOOL, INT, STR_LIST
from nsqcore.options.options import option
from nsqtools.options import ConsumingOptions


@dataclass(frozen=True, kw_only=True)
class TailOptions(ConsumingOptions):
    program = "nsq_tail"

    topic: tuple[str, ...] = option((), kind=STR_LIST, help="NSQ topic (may be given multiple times)")
    channel: str = option("", help="NSQ channel; an ephemeral one of its own if not given")
    n: int = option(0, kind=INT, help="total messages to show (will wait if starved)")
    headers: bool = option(False, kind=BOOL, help="print the headers of messages, as JSON")
    print_topic: bool = option(False, kind=BOOL, help="print topic name where message was received")

    def problem(self) -> str | None:
        if problem := self.source_problem():
            return problem
        if not self.topic:
            return "--topic required"
        if not all(map(is_valid_name, self.topic)):
            return "invalid topic name"
        if self.channel and not is_valid_name(self.channel):
            return "invalid channel name"
        return self.consumer_problem()
