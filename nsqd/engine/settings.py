"""The policies for one topic or channel, as the engine reads them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in nanoseconds, sizes in bytes; 0 and the empty name mean that no policy sets the value."""

    # For a topic's log: how long, and how many bytes of, the fully finished messages are retained.
    retain_time_ns: int = 0
    retain_bytes: int = 0
    # The most that a channel, or a topic without one, may have to deliver.
    max_depth: int = 0
    max_bytes: int = 0
    # Whether the oldest pending messages are dropped at that bound; otherwise the publisher gets an error.
    drop_oldest: bool = False
    # The time to live, counted from publishing.
    ttl_ns: int = 0
    # The most deliveries of one message.
    max_attempts: int = 0
    # The delay of a message that comes back after its first delivery, and the longest after later ones.
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
        """Whether finished messages are retained for a while."""
        return bool(self.retain_time_ns or self.retain_bytes or self.dedup_window_ns)

    @property
    def bounded(self) -> bool:
        """Whether there is a limit on pending messages."""
        return bool(self.max_depth or self.max_bytes)

    def retry_after_ns(self, attempts: int) -> int:
        """The delay of a message that came back after so many deliveries: twice as long each time, to a
        maximum.
        """
        delay_ns = self.retry_delay_ns
        # The shift is bounded because attempts are not.
        return min(delay_ns << min(max(0, attempts - 1), 62), self.retry_delay_max_ns) if delay_ns else 0


# The settings of most topics and channels, which share this object.
NOTHING: Final = Settings()

# The settings of one of a topic's channels, or of the topic when the channel's name is empty.
SettingsOf: TypeAlias = Callable[[str, str], Settings]


def no_policies(topic_name: str, channel_name: str) -> Settings:  # noqa: ARG001 - the same for all
    """No policy sets any value."""
    return NOTHING
