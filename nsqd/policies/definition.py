"""The definition of a policy: which settings it may have, and what they mean.

A definition is accepted as a whole or refused with one sentence. No part of it is ignored.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from nsqclient.wire.durations import HOUR
from nsqclient.wire.names import MAX_NAME_LENGTH, is_valid_name
from nsqd.engine.settings import Settings
from nsqd.policies.quantities import count, duration_ns, size_bytes

REJECT: Final = "reject"
DROP_OLDEST: Final = "drop-oldest"
# Copies of one log; each costs as much as writing the log once more.
MAX_REPLICAS: Final = 2
# A growing delay stops here by default: NSQ's own --max-req-timeout.
_RETRY_DELAY_MAX_NS: Final = HOUR


class BadPolicy(ValueError):
    """A policy that cannot be accepted; the text is one sentence for its author."""


def _topic_name(value: Any) -> str:
    if not isinstance(value, str) or not is_valid_name(value):
        raise ValueError(
            f"must be the name of a topic, 1 to {MAX_NAME_LENGTH} of .a-zA-Z0-9_-, not {value!r}"
        )
    return value


def _when_full(value: Any) -> bool:
    if value not in (REJECT, DROP_OLDEST):
        raise ValueError(f"must be '{REJECT}' or '{DROP_OLDEST}', not {value!r}")
    return bool(value == DROP_OLDEST)


def _replicas(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_REPLICAS:
        raise ValueError(f"must be a whole number from 0 to {MAX_REPLICAS}, not {value!r}")
    return value


# A setting -> its field in `Settings`, and how its value is read.
_MEANINGS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "retain_time": ("retain_time_ns", duration_ns),
    "retain_bytes": ("retain_bytes", size_bytes),
    "max_depth": ("max_depth", count),
    "max_bytes": ("max_bytes", size_bytes),
    "when_full": ("drop_oldest", _when_full),
    "ttl": ("ttl_ns", duration_ns),
    "max_attempts": ("max_attempts", count),
    "retry_delay": ("retry_delay_ns", duration_ns),
    "retry_delay_max": ("retry_delay_max_ns", duration_ns),
    "dead_letter_topic": ("dead_letter_topic", _topic_name),
    "max_defer": ("max_defer_ns", duration_ns),
    "dedup_window": ("dedup_window_ns", duration_ns),
    "replicas": ("replicas", _replicas),
}
KEYS: Final = tuple(_MEANINGS)
# Settings of a topic's log, which mean nothing for one channel.
TOPICS_OWN: Final = ("retain_time", "retain_bytes", "dedup_window", "replicas")


def understand(definition: Any) -> Settings:
    """The settings that *definition* stands for. Raises BadPolicy."""
    if not isinstance(definition, Mapping):
        raise BadPolicy("definition must be a table of settings")
    if not definition:
        raise BadPolicy("definition says nothing")
    found: dict[str, Any] = {}
    for key, value in definition.items():
        meaning = _MEANINGS.get(key)
        if meaning is None:
            near = get_close_matches(str(key), KEYS, 1)
            raise BadPolicy(f"there is no setting {key!r}{f'; did you mean {near[0]}?' if near else ''}")
        field, read = meaning
        try:
            found[field] = read(value)
        except ValueError as error:
            raise BadPolicy(f"{key} {error}") from error
    _refuse_contradictions(definition, found)
    if "retry_delay" in definition and "retry_delay_max" not in definition:
        found["retry_delay_max_ns"] = max(found["retry_delay_ns"], _RETRY_DELAY_MAX_NS)
    return Settings(**found)


def _refuse_contradictions(definition: Mapping[str, Any], found: dict[str, Any]) -> None:
    """Raises BadPolicy for a setting that makes sense by itself but not with the others."""
    if "when_full" in definition and not {"max_depth", "max_bytes"} & definition.keys():
        raise BadPolicy("when_full needs max_depth or max_bytes: nothing else can be full")
    if "retry_delay_max" in definition:
        if "retry_delay" not in definition:
            raise BadPolicy("retry_delay_max needs retry_delay: it is where that stops growing")
        if found["retry_delay_max_ns"] < found["retry_delay_ns"]:
            raise BadPolicy("retry_delay_max is shorter than retry_delay")
    if "dead_letter_topic" in definition and not {"max_attempts", "ttl"} & definition.keys():
        raise BadPolicy("dead_letter_topic needs max_attempts or ttl: nothing else sends a message there")
