"""The common options of all tools: no config file, and one short line when options cannot work."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from nsqclient.version import __version__
from nsqclient.wire.address import split_address
from nsqclient.wire.version import NSQ_VERSION
from nsqcore.near_misses import meant_address
from nsqcore.options.kinds import DIAL_LIST, INT, Kind
from nsqcore.options.options import CommandOptions, option
from nsqcore.process.logs import timestamp

# Modules that --help and --version do not need are loaded where they are used.
if TYPE_CHECKING:
    from nsqclient import Config


@dataclass(frozen=True, kw_only=True)
class ToolOptions(CommandOptions):
    """The options of every tool."""

    @staticmethod
    def refusal(program: str, sentence: str) -> str:  # noqa: ARG004 - the daemons' lines name their program
        return f"{timestamp()[:19]} {sentence}"


def one_kind_of_address(kind: str, nsqd: tuple[str, ...], lookupd: tuple[str, ...]) -> str | None:
    """Refuse neither or both of the two ways to find nsqd; *kind* is ``tcp`` or ``http``."""
    if not nsqd and not lookupd:
        return f"--nsqd-{kind}-address or --lookupd-http-address required"
    if nsqd and lookupd:
        return f"use --nsqd-{kind}-address or --lookupd-http-address not both"
    return None


def _client_option(word: str) -> tuple[str, ...]:
    from nsqclient.config import check_option

    check_option(word)
    return (word,)


CLIENT_OPTION: Final = Kind("value", _client_option, _client_option, listed=True)
"""``key,value`` for the client library. Each is checked at once; later, whether all fit together."""


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
        if self.max_in_flight <= 0:
            return "--max-in-flight should be positive"
        from nsqclient.lookups import lookup_url

        return (
            address_problem("nsqd-tcp", self.nsqd_tcp_address, 4150)
            or address_problem("lookupd-http", self.lookupd_http_address, 4161, lookup_url)
            or config_problem(self.consumer_opt)
        )

    def consumer_config(self, program: str, *, headers: bool = False) -> "Config":
        """The settings of the client; *headers* asks for message headers, which not every nsqd supports."""
        fixed = {"headers": True} if headers else {}
        return client_config(program, self.consumer_opt, max_in_flight=self.max_in_flight, **fixed)


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
    from nsqclient import Config

    try:
        Config().with_options(*given)
    except (ValueError, TypeError, OSError) as error:
        return str(error)
    return None


def client_config(program: str, given: tuple[str, ...], **fixed: Any) -> "Config":
    """The settings of a client; *fixed* settings of the tool override the given ones."""
    from nsqclient import Config

    agent = f"{program}/{NSQ_VERSION} nsqclient/{__version__}"
    return replace(Config().with_options(*given), user_agent=agent, **fixed)
