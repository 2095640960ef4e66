"""The options of the data source: strings from Spark, checked once, then typed. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from nsqclient.wire.names import is_ephemeral, is_valid_name
from pyspark_nsq.source.errors import OptionError
from pyspark_nsq.source.offsets import Offsets


class StartingOffsets(Enum):
    """Where a query without a checkpoint starts."""

    ACKNOWLEDGED = "acknowledged"
    """The pending messages of the channel."""
    EARLIEST = "earliest"
    """The first message that is still kept."""
    LATEST = "latest"
    """What is published from now on."""


class BodyFormat(Enum):
    """How bodies are converted."""

    BINARY = "binary"
    JSON = "json"


# Options of reads and writes: where the nodes are, and how they are asked.
NODE_NAMES: Final = (
    "lookupdHttpAddresses",
    "nsqdHttpAddresses",
    "requestTimeout",
    "retryTimeout",
    "authSecretFile",
    "authAllowCleartext",
    "tlsRootCaFile",
    "tlsCertFile",
    "tlsKeyFile",
    "tlsInsecureSkipVerify",
)
NAMES: Final = (
    *NODE_NAMES,
    "topic",
    "topicPattern",
    "channel",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "bodyFormat",
    "schemaLocation",
    "includeHeaders",
    "forgetNsqds",
    "forgetTopics",
)
# Names of the same options in Kafka's connector.
ALIASES: Final = {
    "subscribe": "topic",
    "subscribepattern": "topicpattern",
    "kafka.group.id": "channel",
}
# Names of Kafka's connector that would otherwise be ignored, and what to use instead.
INSTEAD: Final = {
    "kafka.bootstrap.servers": "lookupdHttpAddresses or nsqdHttpAddresses",
    "assign": "startingOffsets and endingOffsets with positions for each nsqd",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
}
# The TLS options, with their names in the client's helper.
_TLS: Final = {
    "tlsRootCaFile": "tls_root_ca_file",
    "tlsCertFile": "tls_cert",
    "tlsKeyFile": "tls_key",
    "tlsInsecureSkipVerify": "tls_insecure_skip_verify",
}
_SCHEME: Final = "https://"
# As many as 2^63 has; Python refuses to convert thousands.
_MAX_DIGITS: Final = 19
_NANOSECONDS: Final = 1_000_000_000
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|)")
_UNITS_S: Final = {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """Where the nodes are, and how they are asked."""

    lookupd_http_addresses: tuple[str, ...] = ()
    nsqd_http_addresses: tuple[str, ...] = ()
    fail_on_data_loss: bool = True
    request_timeout_s: float = 10.0
    retry_s: float = 10.0
    auth_secret_file: str = ""
    auth_allow_cleartext: bool = False
    tls: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(NodeOptions):
    """The options of ``format("nsq")``; docs/spark-reference.md explains each."""

    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    channel: str = ""
    starting_offsets: StartingOffsets | None = None
    starting_positions: Mapping[str, int] = field(default_factory=dict)
    """By the name of the log, or by topic and name when there are several."""
    ending_positions: Mapping[str, int] = field(default_factory=dict)
    starting_timestamps_ns: Mapping[str, int] = field(default_factory=dict)
    """By topic; a time for all topics has the key ""."""
    ending_timestamps_ns: Mapping[str, int] = field(default_factory=dict)
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 900.0
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    body_format: BodyFormat = BodyFormat.BINARY
    schema_location: str = ""
    include_headers: bool = False
    forget_nsqds: tuple[str, ...] = ()
    forget_topics: tuple[str, ...] = ()

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "SourceOptions":
        """Check and convert the options from Spark; names are case-insensitive. Raises OptionError."""
        options = OptionReader(given, NAMES, ALIASES, INSTEAD)
        starting, starting_positions = options.starting_offsets()
        forget_topics = options.topics("forgetTopics")
        parsed = cls(
            **options.nodes(retry_s=10.0),
            topics=tuple(topic for topic in options.topics("topic") if topic not in forget_topics),
            topic_pattern=options.pattern("topicPattern"),
            channel=options.name("channel"),
            starting_offsets=starting,
            starting_positions=starting_positions,
            ending_positions=options.ending_offsets(),
            starting_timestamps_ns=options.timestamps_ns("startingTimestamp"),
            ending_timestamps_ns=options.timestamps_ns("endingTimestamp"),
            max_offsets_per_trigger=options.count("maxOffsetsPerTrigger"),
            max_bytes_per_trigger=options.count("maxBytesPerTrigger"),
            min_offsets_per_trigger=options.count("minOffsetsPerTrigger"),
            max_trigger_delay_s=options.seconds("maxTriggerDelay", 900.0, zero_allowed=False),
            min_partitions=options.count("minPartitions"),
            max_records_per_partition=options.count("maxRecordsPerPartition"),
            fail_on_data_loss=options.flag("failOnDataLoss", default=True),
            body_format=BodyFormat(options.one_of("bodyFormat", [one.value for one in BodyFormat])),
            schema_location=options.text("schemaLocation"),
            include_headers=options.flag("includeHeaders", default=False),
            forget_nsqds=options.addresses("forgetNsqds"),
            forget_topics=forget_topics,
        )
        if not parsed.topics and options.topics("topic"):
            raise OptionError("option forgetTopics has all topics of option topic, so there is none to read")
        if bool(parsed.topics) == bool(parsed.topic_pattern):
            given_topics = "both are" if parsed.topics else "neither is"
            raise OptionError(
                f"exactly one of the options topic and topicPattern must be given; {given_topics}"
            )
        if parsed.topic_pattern and parsed.nsqd_http_addresses:
            raise OptionError("option topicPattern needs lookupdHttpAddresses, which lists the topics")
        if parsed.schema_location and parsed.body_format is not BodyFormat.JSON:
            raise OptionError("option schemaLocation is for bodyFormat=json")
        if parsed.starting_timestamps_ns and (starting or starting_positions):
            raise OptionError("the options startingOffsets and startingTimestamp exclude each other")
        for option, times in (
            ("startingTimestamp", parsed.starting_timestamps_ns),
            ("endingTimestamp", parsed.ending_timestamps_ns),
        ):
            for topic in times:
                if topic and not parsed.is_chosen(topic):
                    raise OptionError(f"option {option} names topic {topic!r}, which the query does not read")
        return parsed

    @property
    def topic(self) -> str:
        """The topic; empty if there may be several."""
        return self.topics[0] if len(self.topics) == 1 else ""

    def is_chosen(self, topic: str) -> bool:
        """Whether the query reads this topic."""
        if self.topic_pattern:
            return re.fullmatch(self.topic_pattern, topic) is not None and topic not in self.forget_topics
        return topic in self.topics

    @property
    def described(self) -> str:
        """The topics, as sentences name them."""
        if self.topic_pattern:
            return f"matching {self.topic_pattern!r}"
        return ", ".join(map(repr, self.topics))

    def for_stream(self) -> "SourceOptions":
        """Return the options if they are valid for a stream. Raises OptionError."""
        if not self.channel:
            raise OptionError(
                "option channel is missing: a stream acknowledges what it has read on a channel"
            )
        if is_ephemeral(self.channel):
            raise OptionError(
                f"option channel is {self.channel!r}: an ephemeral channel is gone when nsqd restarts, and "
                "with it what keeps the messages that the query has not read; name one without #ephemeral"
            )
        if self.ending_positions or self.ending_timestamps_ns:
            raise OptionError("the options endingOffsets and endingTimestamp are for batch reads")
        return self

    def for_batch(self) -> "SourceOptions":
        """Return the options if they are valid for a batch read. Raises OptionError."""
        if self.starting_offsets is StartingOffsets.LATEST:
            raise OptionError(
                'option startingOffsets is "latest", with which a batch read would find nothing'
            )
        if self.starting_offsets is StartingOffsets.ACKNOWLEDGED and not self.channel:
            raise OptionError('option channel is missing: startingOffsets is "acknowledged"')
        return self

    def starting_ns(self, topic: str) -> int | None:
        """Return the time from which on messages of the topic are read, in nanoseconds since 1970."""
        return self.starting_timestamps_ns.get(topic, self.starting_timestamps_ns.get(""))

    def ending_ns(self, topic: str) -> int | None:
        """Return the time before which messages of the topic are read, in nanoseconds since 1970."""
        return self.ending_timestamps_ns.get(topic, self.ending_timestamps_ns.get(""))

    def on(self, topic: str) -> "SourceOptions":
        """Return the same options for one of their topics."""
        return self if not topic or self.topics == (topic,) else replace(self, topics=(topic,))


class OptionReader:
    """The given strings, requested by name and checked. Invalid ones raise OptionError."""

    def __init__(
        self,
        given: Mapping[str, str],
        names: tuple[str, ...],
        aliases: Mapping[str, str] | None = None,
        instead: Mapping[str, str] | None = None,
    ) -> None:
        """*instead* tells what to use instead of names that have no meaning here."""
        self._values: dict[str, str] = {}
        known = {name.lower() for name in names}
        for name, value in given.items():
            plain = (aliases or {}).get(name.lower(), name.lower())
            if plain in (instead or {}):
                raise OptionError(f"option {name} is of another source; use {(instead or {})[plain]}")
            if plain not in known:
                raise OptionError(f"option {name} is not known; there are: {', '.join(names)}")
            if self._values.get(plain):
                raise OptionError(f"option {name} is given twice, under two names")
            self._values[plain] = value.strip()

    def nodes(self, *, retry_s: float) -> dict[str, Any]:
        """Return the arguments of :class:`NodeOptions` that reads and writes have, by name."""
        lookupds, nsqds = self.addresses("lookupdHttpAddresses"), self.addresses("nsqdHttpAddresses")
        if bool(lookupds) == bool(nsqds):
            raise OptionError(
                "exactly one of the options lookupdHttpAddresses and nsqdHttpAddresses must be given"
            )
        return {
            "lookupd_http_addresses": lookupds,
            "nsqd_http_addresses": nsqds,
            "request_timeout_s": self.seconds("requestTimeout", 10.0, zero_allowed=False),
            "retry_s": self.seconds("retryTimeout", retry_s, zero_allowed=True),
            "auth_secret_file": self.text("authSecretFile"),
            "auth_allow_cleartext": self.flag("authAllowCleartext", default=False),
            "tls": self.tls(),
        }

    def name(self, option: str) -> str:
        value = self.text(option)
        if value and not is_valid_name(value):
            raise OptionError(f"option {option} is {value!r}, which is not a valid {option} name")
        return value

    def topics(self, option: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(name.strip() for name in self.text(option).split(",") if name.strip()))
        for name in found:
            if not is_valid_name(name):
                raise OptionError(f"option {option} is {name!r}, which is not a valid topic name")
        return found

    def pattern(self, option: str) -> str:
        value = self.text(option)
        try:
            re.compile(value)
        except re.error as error:
            raise OptionError(
                f"option {option} is {value!r}, which is no regular expression: {error}"
            ) from None
        return value

    def text(self, option: str) -> str:
        return self._values.get(option.lower(), "")

    def one_of(self, option: str, allowed: list[str]) -> str:
        """Return one of the *allowed* words; the first is the default."""
        value = self.text(option).lower() or allowed[0]
        if value not in allowed:
            raise OptionError(f"option {option} is {value!r}; there are: {', '.join(allowed)}")
        return value

    def tls(self) -> dict[str, str]:
        skip = self.flag("tlsInsecureSkipVerify", default=False)
        given = {name: self.text(option) for option, name in _TLS.items()}
        given["tls_insecure_skip_verify"] = "true" if skip else ""
        if bool(given["tls_cert"]) != bool(given["tls_key"]):
            raise OptionError("the options tlsCertFile and tlsKeyFile are needed together")
        return {name: value for name, value in given.items() if value}

    def addresses(self, option: str) -> tuple[str, ...]:
        found = [address.strip() for address in self.text(option).split(",")]
        addresses = tuple(dict.fromkeys(address for address in found if address))
        for address in addresses:
            host, _, port = address.removeprefix(_SCHEME).rpartition(":")
            if not host or "/" in host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
                raise OptionError(
                    f"option {option} has {address!r}; it must be host:port, or https://host:port"
                )
        return addresses

    def starting_offsets(self) -> tuple[StartingOffsets | None, Offsets]:
        """Return a word, or a position for each log."""
        value = self.text("startingOffsets")
        if not value:
            return None, {}
        if value.startswith("{"):
            return None, self._positions("startingOffsets")
        try:
            return StartingOffsets(value.lower()), {}
        except ValueError:
            allowed = ", ".join(member.value for member in StartingOffsets)
            raise OptionError(
                f"option startingOffsets is {value!r}; there are: {allowed}, "
                'or JSON with a position for each nsqd, such as {"nsqd-0:4151": 1700000000000123}'
            ) from None

    def ending_offsets(self) -> Offsets:
        value = self.text("endingOffsets")
        return {} if value.lower() in {"", "latest"} else self._positions("endingOffsets")

    def _positions(self, option: str) -> Offsets:
        """Read ``{"nsqd-0:4151": 17}``, or the same inside a topic, as in Kafka's connector."""
        try:
            record = json.loads(self.text(option))
            found: dict[str, Any] = {}
            for name, value in record.items():
                if isinstance(value, dict):
                    found |= {f"{name}@{nsqd}": position for nsqd, position in value.items()}
                else:
                    found[name] = value
            if not all(type(position) is int and position >= 0 for position in found.values()):
                raise TypeError("a position is no whole number")
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise OptionError(
                f"option {option} is {self.text(option)!r}; it must be JSON with a position for each nsqd, "
                f'such as {{"nsqd-0:4151": 1700000000000123}}: {error}'
            ) from None
        return found

    def timestamps_ns(self, option: str) -> dict[str, int]:
        """Return a time for all topics, with the key "", or one for each topic of a JSON object."""
        text = self.text(option)
        if not text.startswith("{"):
            return {"": _timestamp_ns(option, text)} if text else {}
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise OptionError(f"option {option} is {text!r}, which is no JSON: {error}") from None
        return {topic: _timestamp_ns(option, str(value)) for topic, value in record.items()}

    def count(self, option: str) -> int | None:
        value = self.text(option)
        if not value:
            return None
        if not (
            value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS and 0 < int(value) < 1 << 63
        ):
            raise OptionError(f"option {option} is {value!r}; it must be a whole number above 0")
        return int(value)

    def flag(self, option: str, *, default: bool) -> bool:
        value = self.text(option).lower()
        if value not in {"", "true", "false"}:
            raise OptionError(f"option {option} is {value!r}; it must be true or false")
        return value == "true" if value else default

    def seconds(self, option: str, default: float, *, zero_allowed: bool) -> float:
        """Return seconds for ``500ms``, ``10s``, ``15m`` or ``2h``; a number without a unit is seconds."""
        value = self.text(option)
        if not value:
            return default
        found = _DURATION.fullmatch(value)
        seconds = float(found[1]) * _UNITS_S[found[2]] if found else -1.0
        if not (0 <= seconds <= 86_400) or (seconds == 0 and not zero_allowed):
            lowest = "0" if zero_allowed else "above 0"
            raise OptionError(
                f"option {option} is {value!r}; it must be a duration such as 500ms, 10s or 15m, "
                f"{lowest} and at most 24h"
            )
        return seconds


def _timestamp_ns(option: str, value: str) -> int:
    """Return nanoseconds for ``2026-11-20T09:00:00Z``, by default UTC, or for milliseconds since 1970."""
    if value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS:
        return int(value) * 1_000_000
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise OptionError(
            f"option {option} is {value!r}; it must be a time such as 2026-11-20T09:00:00Z, "
            "or milliseconds since 1970"
        ) from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(aware.timestamp()) * _NANOSECONDS + aware.microsecond * 1000
