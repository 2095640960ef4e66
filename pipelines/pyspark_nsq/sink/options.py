"""The options of a write: strings from Spark, checked once, then typed. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark_nsq.source.options import OptionReader, SourceOptions, check_addresses

NAMES: Final = (
    "lookupdHttpAddresses",
    "nsqdHttpAddresses",
    "topic",
    "maxBatchBytes",
    "requestTimeout",
    "retryTimeout",
    "authSecretFile",
    "authAllowCleartext",
    "tlsRootCaFile",
    "tlsCertFile",
    "tlsKeyFile",
    "tlsInsecureSkipVerify",
)
# Options of Spark itself that it passes on to the sink.
_SPARKS_OWN: Final = frozenset(("path", "checkpointlocation"))
# nsqd accepts 5 MiB in one request unless it is configured otherwise.
_BATCH_BYTES: Final = 1 << 20


def without_sparks_own(given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name.lower() not in _SPARKS_OWN}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of ``write.format("nsq")``; docs/spark-reference.md explains each."""

    topic: str = ""
    lookupd_http_addresses: tuple[str, ...] = ()
    nsqd_http_addresses: tuple[str, ...] = ()
    max_batch_bytes: int = _BATCH_BYTES
    request_timeout_s: float = 10.0
    retry_s: float = 30.0
    auth_secret_file: str = ""
    auth_allow_cleartext: bool = False
    tls: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "SinkOptions":
        """Check and convert the options. Raises OptionError."""
        options = OptionReader(without_sparks_own(given), NAMES)
        parsed = cls(
            topic=options.name("topic", required=False),
            lookupd_http_addresses=options.addresses("lookupdHttpAddresses"),
            nsqd_http_addresses=options.addresses("nsqdHttpAddresses"),
            max_batch_bytes=options.count("maxBatchBytes") or _BATCH_BYTES,
            request_timeout_s=options.seconds("requestTimeout", 10.0, zero_allowed=False),
            retry_s=options.seconds("retryTimeout", 30.0, zero_allowed=True),
            auth_secret_file=options.text("authSecretFile"),
            auth_allow_cleartext=options.flag("authAllowCleartext", default=False),
            tls=options.tls(),
        )
        check_addresses(parsed.lookupd_http_addresses, parsed.nsqd_http_addresses)
        return parsed

    def for_nodes(self) -> SourceOptions:
        """Return the options for connections to nodes."""
        return SourceOptions(
            lookupd_http_addresses=self.lookupd_http_addresses,
            nsqd_http_addresses=self.nsqd_http_addresses,
            request_timeout_s=self.request_timeout_s,
            retry_s=self.retry_s,
            auth_secret_file=self.auth_secret_file,
            auth_allow_cleartext=self.auth_allow_cleartext,
            tls=self.tls,
        )
