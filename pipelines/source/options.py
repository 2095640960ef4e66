"""The options of the data source: strings from Spark, checked once, then typed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from nsqcore.wire.names import is_valid_name
from pipelines.source.errors import OptionError


class StartingOffsets(Enum):
    """Where a query starts that has no checkpoint yet."""

    ACKNOWLEDGED = "acknowledged"
    """What the channel owes."""
    EARLIEST = "earliest"
    """The first message that is still kept."""
    LATEST = "latest"
    """What is published from now on."""


NAMES: Final = (
    "lookupd_http_addresses",
    "nsqd_http_addresses",
    "topic",
    "channel",
    "startingOffsets",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "requestTimeoutSeconds",
    "retrySeconds",
    "authSecretFile",
    "tlsRootCaFile",
    "tlsCertFile",
    "tlsKeyFile",
    "tlsInsecureSkipVerify",
    "forgetNsqds",
)
# The TLS options, by the names that the client's helper has for them.
_TLS: Final = {
    "tlsRootCaFile": "tls_root_ca_file",
    "tlsCertFile": "tls_cert",
    "tlsKeyFile": "tls_key",
    "tlsInsecureSkipVerify": "tls_insecure_skip_verify",
}
_SCHEME: Final = "https://"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of ``format("nsq")``; docs/pipelines.md explains each."""

    topic: str
    channel: str = ""
    lookupd_http_addresses: tuple[str, ...] = ()
    nsqd_http_addresses: tuple[str, ...] = ()
    starting_offsets: StartingOffsets | None = None
    max_offsets_per_trigger: int | None = None
    min_partitions: int = 1
    fail_on_data_loss: bool = True
    request_timeout_s: float = 10.0
    retry_s: float = 10.0
    auth_secret_file: str = ""
    tls: Mapping[str, str] = field(default_factory=dict)
    forget_nsqds: tuple[str, ...] = ()

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "SourceOptions":
        """Read and check the options as Spark hands them over; their names are case-insensitive."""
        options = _Given(given)
        parsed = cls(
            topic=options.name("topic"),
            channel=options.name("channel", required=False),
            lookupd_http_addresses=options.addresses("lookupd_http_addresses"),
            nsqd_http_addresses=options.addresses("nsqd_http_addresses"),
            starting_offsets=options.starting_offsets(),
            max_offsets_per_trigger=options.count("maxOffsetsPerTrigger"),
            min_partitions=options.count("minPartitions") or 1,
            fail_on_data_loss=options.flag("failOnDataLoss", default=True),
            request_timeout_s=options.seconds("requestTimeoutSeconds", 10.0, zero_allowed=False),
            retry_s=options.seconds("retrySeconds", 10.0, zero_allowed=True),
            auth_secret_file=options.text("authSecretFile"),
            tls=options.tls(),
            forget_nsqds=options.addresses("forgetNsqds"),
        )
        if bool(parsed.lookupd_http_addresses) == bool(parsed.nsqd_http_addresses):
            raise OptionError(
                "exactly one of the options lookupd_http_addresses and nsqd_http_addresses must be given"
            )
        return parsed

    def for_stream(self) -> "SourceOptions":
        """The same options, if a stream can be read with them."""
        if not self.channel:
            raise OptionError(
                "option channel is missing: a stream acknowledges what it has read on a channel"
            )
        return self

    def for_batch(self) -> "SourceOptions":
        """The same options, if a batch can be read with them."""
        if self.starting_offsets is StartingOffsets.LATEST:
            raise OptionError(
                'option startingOffsets is "latest", with which a batch read would find nothing'
            )
        if self.starting_offsets is StartingOffsets.ACKNOWLEDGED and not self.channel:
            raise OptionError('option channel is missing: startingOffsets is "acknowledged"')
        return self


class _Given:
    """The strings, asked for by name."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values = {name.lower(): value.strip() for name, value in given.items()}
        known = {name.lower() for name in NAMES}
        for name in given:
            if name.lower() not in known:
                raise OptionError(f"option {name} is not known; there are: {', '.join(NAMES)}")

    def name(self, option: str, *, required: bool = True) -> str:
        value = self._values.get(option, "")
        if not value:
            if required:
                raise OptionError(f"option {option} is missing")
            return ""
        if not is_valid_name(value):
            raise OptionError(f"option {option} is {value!r}, which is not a valid {option} name")
        return value

    def text(self, option: str) -> str:
        return self._values.get(option.lower(), "")

    def tls(self) -> dict[str, str]:
        skip = self.flag("tlsInsecureSkipVerify", default=False)
        given = {name: self.text(option) for option, name in _TLS.items()}
        given["tls_insecure_skip_verify"] = "true" if skip else ""
        if bool(given["tls_cert"]) != bool(given["tls_key"]):
            raise OptionError("the options tlsCertFile and tlsKeyFile are needed together")
        return {name: value for name, value in given.items() if value}

    def addresses(self, option: str) -> tuple[str, ...]:
        found = [address.strip() for address in self._values.get(option.lower(), "").split(",")]
        addresses = tuple(dict.fromkeys(address for address in found if address))
        for address in addresses:
            host, _, port = address.removeprefix(_SCHEME).rpartition(":")
            if not host or "/" in host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
                raise OptionError(
                    f"option {option} has {address!r}; it must be host:port, or https://host:port"
                )
        return addresses

    def starting_offsets(self) -> StartingOffsets | None:
        value = self._values.get("startingoffsets", "")
        if not value:
            return None
        try:
            return StartingOffsets(value.lower())
        except ValueError:
            allowed = ", ".join(member.value for member in StartingOffsets)
            raise OptionError(f"option startingOffsets is {value!r}; there are: {allowed}") from None

    def count(self, option: str) -> int | None:
        value = self._values.get(option.lower(), "")
        if not value:
            return None
        if not (value.isascii() and value.isdigit() and 0 < int(value) < 1 << 63):
            raise OptionError(f"option {option} is {value!r}; it must be a whole number above 0")
        return int(value)

    def flag(self, option: str, *, default: bool) -> bool:
        value = self._values.get(option.lower(), "").lower()
        if value not in {"", "true", "false"}:
            raise OptionError(f"option {option} is {value!r}; it must be true or false")
        return value == "true" if value else default

    def seconds(self, option: str, default: float, *, zero_allowed: bool) -> float:
        value = self._values.get(option.lower(), "")
        if not value:
            return default
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        # Written so that "nan" is refused as well.
        if not (0 <= seconds <= 86_400) or (seconds == 0 and not zero_allowed):
            lowest = "0" if zero_allowed else "above 0"
            raise OptionError(
                f"option {option} is {value!r}; it must be a number of seconds, {lowest} to 86400"
            )
        return seconds
