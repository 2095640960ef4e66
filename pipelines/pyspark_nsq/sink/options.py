"""The options of a write: strings from Spark, checked once, then typed. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_nsq.source.options import NODE_NAMES, NodeOptions, OptionReader

NAMES: Final = (*NODE_NAMES, "topic", "maxBatchBytes")
# Options of Spark itself that it passes on to the sink.
_SPARKS_OWN: Final = frozenset(("path", "checkpointlocation"))
# nsqd accepts 5 MiB in one request unless it is configured otherwise.
_BATCH_BYTES: Final = 1 << 20


def without_sparks_own(given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name.lower() not in _SPARKS_OWN}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(NodeOptions):
    """The options of ``write.format("nsq")``; docs/spark-reference.md explains each."""

    topic: str = ""
    max_batch_bytes: int = _BATCH_BYTES

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "SinkOptions":
        """Check and convert the options. Raises OptionError."""
        options = OptionReader(without_sparks_own(given), NAMES)
        return cls(
            **options.nodes(retry_s=30.0),
            topic=options.name("topic"),
            max_batch_bytes=options.count("maxBatchBytes") or _BATCH_BYTES,
        )
