"""What policies say of one topic or channel, as the engine reads it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in nanoseconds, sizes in bytes; 0 and the empty name stand for what no policy says."""

    # Of a topic's log: how long, and how much of, what everybody has finished stays.
    retain_time_ns: int = 0
    retain_bytes: int = 0
    # What a channel, or a topic without one, may owe.
    max_depth: int = 0
    max_bytes: int = 0
    # What is done when it owes that: the oldest waiting goes, or the publisher is told.
    drop_oldest: bool = False
    # From publishing on.
    ttl_ns: int = 0
    # Deliveries of one message.
    max_attempts: int = 0
    # What a message waits that came back after its first delivery, and at most after later ones.
    retry_delay_ns: int = 0
    retry_delay_max_ns: int = 0
    dead_letter_topic: str = ""
    # In place of --max-req-timeout.
    max_defer_ns: int = 0
    dedup_window_ns: int = 0
    # Copies on other nodes, in place of --replicas.
    replicas: int | None = None

    @property
    def retains(self) -> bool:
        """Whether what is finished stays for a while."""
        return bool(self.retain_time_ns or self.retain_bytes or self.dedup_window_ns)

    @property
    def bounded(self) -> bool:
        """Whether there is a bound to what is owed."""
        return bool(self.max_depth or self.max_bytes)

    def retry_after_ns(self, attempts: int) -> int:
        """What a message waits that came back after so many deliveries: twice as long each time."""
        delay_ns = self.retry_delay_ns
        # The shift is bounded, for attempts are not.
        return min(delay_ns << min(max(0, attempts - 1), 62), self.retry_delay_max_ns) if delay_ns else 0


# Most topics and channels: all of them share this one.
NOTHING: Final = Settings()

# The settings of a topic, for which the channel's name is empty, or of one of its channels.
SettingsOf: TypeAlias = Callable[[str, str], Settings]


def no_policies(topic_name: str, channel_name: str) -> Settings:  # noqa: ARG001 - the same for all
    """No policy says anything."""
    return NOTHING
