"""What is refused to publishers in the random work: a channel that is full, a disk that is nearly so.

A publish that is refused was never there. Only while there is a reason is one refused, and then each is.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.campaign.node import KEEPS
from tests.support.simulated_disk import UNLIMITED
from tests.support.simulated_loop import SECOND

if TYPE_CHECKING:
    from tests.campaign.workload import Workload

FILLS: Final = (KEEPS, "b")
BOUND: Final = 12
# So much has to be free.
MARK: Final = "1MiB"
_FULL: Final = b"topic is full"
_LOW: Final = b"disk is nearly full"
# The node looks every second, in a thread.
_NOTICED_NS: Final = 2 * SECOND


@dataclass(frozen=True, slots=True)
class Room:
    """How it stood when something was published: whether it had to be refused, and why."""

    full: bool = False
    low: bool = False

    def is_reason(self, data: bytes) -> bool:
        """Whether that is what a publisher is told."""
        return (self.full and data.endswith(_FULL)) or (self.low and data.endswith(_LOW))


class Refusals:
    """Watches one workload."""

    def __init__(self, work: "Workload") -> None:
        self._work = work
        # Since when as much of the disk is free as now.
        self._since_ns = 0

    def room(self, topic_name: str, count: int) -> Room:
        """How it stands with *count* messages that are about to be published."""
        if not self._work.rules.ruled:
            return Room()
        broker = self._work.node.broker
        topic = broker.topics.get(topic_name)
        channel = topic.channels.get(FILLS[1]) if topic and topic_name == FILLS[0] else None
        full = bool(channel and topic and channel.count() + topic.staged_count + count > BOUND)
        return Room(full, broker.disk_low)

    def judge(self, topic_name: str, count: int, before: Room, data: bytes) -> bool:
        """Whether it was refused; *data* is what its publisher was told. Without reason the work ends."""
        if data == b"OK":
            if before.full or before.low:
                self._work.break_off(f"{count} messages of {topic_name} were taken in spite of {before}")
            return False
        if not data.endswith((_FULL, _LOW)):
            return False
        now = self.room(topic_name, count)
        if not (before.is_reason(data) or now.is_reason(data)):
            self._work.break_off(f"{topic_name} is told {data!r}: {before}, {now}")
        return True

    # --- the disk ---

    def fill(self, seconds: float) -> None:
        """Have nothing be free for so long."""
        if not self._work.disk.free_bytes:
            return
        self._set(0)
        self._work.loop.call_later(seconds, self.clear)

    def clear(self) -> None:
        self._set(UNLIMITED)

    def started(self) -> None:
        """A node has begun to look."""
        self._since_ns = self._work.loop.clock.monotonic_ns

    def look(self) -> None:
        """See that the node knows how much is free."""
        work = self._work
        low = not work.disk.free_bytes
        known = work.loop.clock.monotonic_ns - self._since_ns > _NOTICED_NS
        if known and not work.faulty and work.node.broker.disk_low != low:
            work.break_off(f"of the disk {work.disk.free_bytes} bytes are free, and low is {not low}")

    def _set(self, free_bytes: int) -> None:
        self._work.disk.free_bytes = free_bytes
        self.started()
