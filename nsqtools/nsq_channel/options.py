"""The actions of nsq_channel and the options of each."""

import re
from dataclasses import dataclass
from typing import Final

from nsqclient.wire.durations import Duration
from nsqclient.wire.names import is_valid_name
from nsqcore.options.kinds import BOOL, DURATION
from nsqcore.options.options import option
from nsqcore.version import banner
from nsqtools.cluster_options import ClusterOptions

_ID: Final = re.compile(r"[0-9a-f]{16}")
_POSITION: Final = "earliest, latest, a sequence, an id, a time, -10m or -7d"


@dataclass(frozen=True, kw_only=True)
class ActionOptions(ClusterOptions):
    """The options of every action."""

    program = "nsq_channel"

    @staticmethod
    def banner(program: str) -> str:
        return banner(program.partition(" ")[0])


@dataclass(frozen=True, kw_only=True)
class ChannelOptions(ActionOptions):
    channel: str = option("", help="NSQ channel")

    def problem(self) -> str | None:
        if problem := self.cluster_problem():
            return problem
        if not self.channel:
            return "--channel required"
        return None if is_valid_name(self.channel) else "--channel is invalid"


@dataclass(frozen=True, kw_only=True)
class NoAction(ChannelOptions):
    """A command line that does not begin with an action."""

    def problem(self) -> str | None:
        return f"the first word says what to do: {', '.join(ACTIONS)}"


@dataclass(frozen=True, kw_only=True)
class CreateOptions(ChannelOptions):
    start: str = option(
        "", help=f"where a new channel starts: {_POSITION}; an existing channel is not changed"
    )


@dataclass(frozen=True, kw_only=True)
class SeekOptions(ChannelOptions):
    to: str = option("", help=f"all stored messages from here on become pending: {_POSITION}")

    def problem(self) -> str | None:
        return super().problem() or (None if self.to else "--to required")


@dataclass(frozen=True, kw_only=True)
class MessageOptions(ActionOptions):
    """The options that say which messages are meant."""

    id: str = option("", help="the message of this id")
    contains: str = option("", help="messages with this text in their body")
    json_field: str = option("", help="messages whose JSON has this value, as user.id=42, or this field")
    from_: str = option("", flag="from", help=f"only from there on: {_POSITION}")
    all: bool = option(False, kind=BOOL, help="all messages")
    dry_run: bool = option(False, kind=BOOL, help="count them and do nothing")

    def which_problem(self, *, state: str = "") -> str | None:
        filtered = bool(self.contains or self.json_field or state)
        if not (self.id or filtered or self.all):
            states = "--state, " if isinstance(self, HandleOptions) else ""
            return f"--id, {states}--contains, --json-field or --all required"
        if self.all and (self.id or filtered):
            return "--all does not go with --id or a filter"
        if self.id and (filtered or self.from_):
            return "--id does not go with --from or a filter"
        if self.id and not _ID.fullmatch(self.id):
            return f"--id {self.id} is no id: 16 digits of 0-9 and a-f"
        return None


@dataclass(frozen=True, kw_only=True)
class HandleOptions(MessageOptions, ChannelOptions):
    state: str = option("", help="messages that are waiting, deferred, in_flight or dead_lettering")

    def problem(self) -> str | None:
        if problem := super().problem() or self.which_problem(state=self.state):
            return problem
        if self.state not in {"", "waiting", "deferred", "in_flight", "dead_lettering"}:
            return f"--state {self.state} is none of waiting, deferred, in_flight, dead_lettering"
        return None


@dataclass(frozen=True, kw_only=True)
class RequeueOptions(HandleOptions):
    defer: Duration = option(0, kind=DURATION, help="how long they are deferred")

    def problem(self) -> str | None:
        return super().problem() or self.number_problem(not_negative=("defer",))


@dataclass(frozen=True, kw_only=True)
class SendBackOptions(MessageOptions):
    """``topic`` is that of the dead letters."""

    def problem(self) -> str | None:
        return self.cluster_problem() or self.which_problem()


@dataclass(frozen=True, kw_only=True)
class PoliciesOptions(ActionOptions):
    """The options for showing the policy in force for the topic, or for one of its channels."""

    channel: str = option("", help="NSQ channel, to show the policy in force for it")

    def problem(self) -> str | None:
        if problem := self.cluster_problem():
            return problem
        return "--channel is invalid" if self.channel and not is_valid_name(self.channel) else None


ACTIONS: Final[dict[str, type[ActionOptions]]] = {
    "create": CreateOptions,
    "delete": ChannelOptions,
    "empty": ChannelOptions,
    "pause": ChannelOptions,
    "unpause": ChannelOptions,
    "seek": SeekOptions,
    "finish": HandleOptions,
    "requeue": RequeueOptions,
    "send": HandleOptions,
    "cancel": HandleOptions,
    "send-back": SendBackOptions,
    "policies": PoliciesOptions,
}

HELP: Final = """Usage of nsq_channel:
  nsq_channel ACTION -topic=... -channel=... -lookupd-http-address=... [flags]

  create    make the channel; with -start it gets the stored messages from there on
  delete    delete the channel
  empty     permanently delete its backlog
  pause     deliver nothing more
  unpause   resume
  seek      make all stored messages from a position on pending
  finish    the channel is done with messages: by -id, a filter, or -all
  requeue   messages wait again, immediately or after -defer
  send      deferred messages wait now
  cancel    the channel is done with deferred messages
  send-back dead letters of -topic go back to the channels they came from
  policies  which policy is in force for -topic, or for -channel, and whether the nsqd have the same

  nsq_channel ACTION -help lists the flags of an action.
"""
