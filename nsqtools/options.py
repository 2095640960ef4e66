"""The common options of all tools: no config file, and one short line when options cannot work."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nsqclient.version import __version__
from nsqclient.wire.address import split_address
from nsqclient.wire.version import NSQ_VERSION
from nsqcore.near_misses import meant_address
from nsqcore.options.kinds import DIAL_LIST, INT, Kind
from nsqcore.options.options import CommandOptions, option
from nsqcore.process.logs import timestamp

# Modules that --help and --version do not need are loaded where they are used.
if TYPE_CHECKING:
    from nsqclient import Config, Consumer
    from nsqclient._jobs import Handler


HTTP_TIMEOUTS: Final = ("http_client_connect_timeout", "http_client_request_timeout")


@dataclass(frozen=True, kw_only=True)
class ToolOptions(CommandOptions):
    """The options of every tool."""

    program: ClassVar[str]

    @staticmethod
    def refusal(program: str, sentence: str) -> str:  # noqa: ARG004 - the daemons' lines name their program
        return f"{timestamp()[:19]} {sentence}"

    def client_config(self, given: tuple[str, ...], *, headers: bool, **fixed: Any) -> "Config":
        """The settings of a client; *fixed* settings of the tool override the given ones."""
        agent = f"{self.program}/{NSQ_VERSION} nsqclient/{__version__}"
        config = _config_of(given)
        return replace(config, user_agent=agent, headers=headers or config.headers, **fixed)

    def number_problem(self, *positive: str, not_negative: tuple[str, ...] = ()) -> str | None:
        """The sentence for the first of these options that is out of range, or None."""
        for name in positive:
            if getattr(self, name) <= 0:
                return f"--{name.replace('_', '-')} should be positive"
        for name in not_negative:
            if getattr(self, name) < 0:
                return f"--{name.replace('_', '-')} should not be negative"
        return None


def headers_of(lines: tuple[str, ...]) -> dict[str, str]:
    """Return the headers of lines ``Key: Value``; a key or value is empty if a line has none."""
    split = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in split}


def one_kind_of_address(kind: str, nsqd: tuple[str, ...], lookupd: tuple[str, ...]) -> str | None:
    """Refuse neither or both of the two ways to find nsqd; *kind* is ``tcp`` or ``http``."""
    if not nsqd and not lookupd:
        return f"--nsqd-{kind}-address or --lookupd-http-address required"
    if nsqd and lookupd:
        return f"use --nsqd-{kind}-address or --lookupd-http-address not both"
    return None


# go-nsq's options for messages that fail, each with its default and largest value. The client has `Retry`.
_RETRY_OPTIONS: Final = {
    "max_attempts": (5, 65_535),
    "default_requeue_delay": (90.0, 3600),
    "max_requeue_delay": (900.0, 3600),
}


def _retry_option(word: str) -> tuple[str, float] | None:
    """Name and value of an option for messages that fail; None for another option. Raises ValueError."""
    from nsqclient._config import option_value

    name, comma, text = word.partition(",")
    name = name.strip().replace("-", "_")
    if name not in _RETRY_OPTIONS:
        return None
    default, highest = _RETRY_OPTIONS[name]
    is_duration = isinstance(default, float)
    text = text.strip() if comma else "true"
    value: float = option_value(name, "float" if is_duration else "int", text, duration=is_duration)
    if not 0 <= value <= highest:
        raise ValueError(f"{name} {value:g} is out of range 0-{highest}")
    return name, value


def _client_option(word: str) -> tuple[str, ...]:
    from nsqclient._config import check_option

    if _retry_option(word) is None:
        check_option(word)
    return (word,)


CLIENT_OPTION: Final = Kind("value", _client_option, _client_option, listed=True)
"""``key,value`` for the client library. Each is checked when it is read; later, whether all fit together."""


@dataclass(frozen=True, kw_only=True)
class ConsumingOptions(ToolOptions):
    """The options of the tools that consume."""

    nsqd_tcp_address: tuple[str, ...] = option(
        (), kind=DIAL_LIST, help="nsqd TCP address (may be given multiple times)"
    )
    lookupd_http_address: tuple[str, ...] = option(
        (), kind=DIAL_LIST, help="lookupd HTTP address (may be given multiple times)"
    )
    max_in_flight: int = option(200, kind=INT, help="max number of messages to allow in flight")
    consumer_opt: tuple[str, ...] = option(
        (),
        kind=CLIENT_OPTION,
        help="option of the consumer as key,value (may be given multiple times), see docs/tools.md;"
        " max_attempts,0 makes it never give a message up",
    )

    def source_problem(self) -> str | None:
        return one_kind_of_address("tcp", self.nsqd_tcp_address, self.lookupd_http_address)

    def consumer_problem(self) -> str | None:
        from nsqclient._lookups import lookup_url

        return (
            self.number_problem("max_in_flight")
            or address_problem("nsqd-tcp", self.nsqd_tcp_address, 4150)
            or address_problem("lookupd-http", self.lookupd_http_address, 4161, lookup_url)
            or config_problem(self.consumer_opt)
        )

    def consumer(
        self,
        topic: str,
        channel: str,
        handler: "Handler[bytes]",
        *,
        headers: bool = False,
        max_in_flight: int = 0,
        **arguments: Any,
    ) -> "Consumer":
        """A consumer of these addresses and settings; *headers* asks for those of messages.

        A message is tried as often as go-nsq does, and then discarded. 0 means ``--max-in-flight``.
        """
        from nsqclient import Consumer, Linear, Retry

        chosen = {name: default for name, (default, _) in _RETRY_OPTIONS.items()}
        chosen |= dict(filter(None, map(_retry_option, self.consumer_opt)))
        delay = Linear(chosen["default_requeue_delay"], chosen["max_requeue_delay"])
        return Consumer(
            topic,
            channel,
            handler,
            nsqd_addresses=self.nsqd_tcp_address,
            lookupd_addresses=self.lookupd_http_address,
            config=self.client_config(
                self.consumer_opt, headers=headers, max_in_flight=max_in_flight or self.max_in_flight
            ),
            retry=Retry(int(chosen["max_attempts"]), delay, then="discard"),
            **arguments,
        )


def address_problem(
    kind: str, addresses: tuple[str, ...], port: int, read: Callable[[str], object] = split_address
) -> str | None:
    """Why one of the addresses of a flag is invalid, or None; *port* is the usual one there."""
    for address in addresses:
        try:
            read(address)
        except ValueError as error:
            return f"--{kind}-address error - {error}{meant_address(address, port)}"
    return None


def config_problem(given: tuple[str, ...]) -> str | None:
    """Why these client options cannot work together, or None."""
    try:
        _config_of(given)
    except (ValueError, TypeError, OSError) as error:
        return str(error)
    return None


def _config_of(given: tuple[str, ...]) -> "Config":
    from nsqclient import Config

    return Config().with_options(*(word for word in given if _retry_option(word) is None))
