"""The options of nsq_peek."""

from dataclasses import dataclass
from typing import Final

from nsqclient.wire.durations import SECOND, Duration
from nsqclient.wire.names import is_valid_name
from nsqcore.options.kinds import BOOL, DURATION, INT
from nsqcore.options.options import option
from nsqtools.cluster_options import ClusterOptions

_STATES: Final = ("waiting", "deferred", "in_flight", "dead_lettering", "finished")
_OUTPUTS: Final = ("text", "json", "body")


@dataclass(frozen=True, kw_only=True)
class PeekOptions(ClusterOptions):
    program = "nsq_peek"

    channel: str = option("", help="NSQ channel; shows the state of each message on it")
    from_: str = option(
        "",
        flag="from",
        help="where to begin: earliest, latest, a sequence, an id, a time, -10m or -7d"
        " (default earliest; latest with --reverse or --follow)",
    )
    n: int = option(0, kind=INT, help="number of messages to show; all without it")
    reverse: bool = option(False, kind=BOOL, help="go back, the newest first")
    state: str = option("", help="only messages that are " + ", ".join(_STATES[:-1]) + " or finished")
    contains: str = option("", help="only messages with this text in their body")
    json_field: str = option("", help="only messages whose JSON has this value, as user.id=42, or this field")
    follow: bool = option(False, kind=BOOL, help="continue with new messages")
    interval: Duration = option(SECOND // 2, kind=DURATION, help="how often --follow looks for more")
    headers: bool = option(False, kind=BOOL, help="print the headers of messages, as JSON")
    output: str = option("text", help="text, json (a line each) or body (nothing else)")

    def problem(self) -> str | None:
        if problem := self.cluster_problem():
            return problem
        if self.channel and not is_valid_name(self.channel):
            return "--channel is invalid"
        if self.output not in _OUTPUTS:
            return f"--output {self.output} is none of {', '.join(_OUTPUTS)}"
        return self.number_problem("interval", not_negative=("n",)) or self._state_problem()

    def _state_problem(self) -> str | None:
        if self.state and self.state not in _STATES:
            return f"--state {self.state} is none of {', '.join(_STATES)}"
        if self.state and not self.channel:
            return "--state needs --channel: only there do messages have one"
        if self.state == "deferred" and self.reverse:
            return "--reverse does not go with --state=deferred, which is shown by due time"
        if self.follow and (self.reverse or self.state):
            # A message before the position reached may get the state later, and would never be shown.
            return "--follow does not go with --reverse or --state"
        return None

    @property
    def start(self) -> str:
        """The position at which to begin."""
        return self.from_ or ("latest" if self.reverse or self.follow else "earliest")
