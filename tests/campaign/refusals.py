"""Checks refusals of publishes in the random work, by a full channel or a nearly full disk.

A refused publish leaves no message. A publish is refused if, and only if, there is a reason.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nsqd.engine.channel import Channel
from nsqd.engine.topic import Topic
from nsqd.log.ranges import size_of
from tests.campaign.node import KEEPS
from tests.support.simulated_disk import UNLIMITED
from tests.support.simulated_loop import SECOND

if TYPE_CHECKING:
    from tests.campaign.workload import Workload

FILLS: Final = (KEEPS, "b")
BOUND: Final = 12
# The space that must be free.
MARK: Final = "1MiB"
_FULL: Final = b"topic is full"
_LOW: Final = b"disk is nearly full"
# The node checks the free space every second, in a thread.
_NOTICED_NS: Final = 2 * SECOND


@dataclass(frozen=True, slots=True)
class DedupBudget:
    """The state when something was published: whether it had to be refused, and why."""

    full: bool = False
    low: bool = False

    def is_reason(self, data: bytes) -> bool:
        """Say whether *data* is the refusal for one of these reasons."""
        return (self.full and data.endswith(_FULL)) or (self.low and data.endswith(_LOW))


def _held(topic: Topic, channel: Channel) -> int:
    """Return how many messages of a paused topic the channel gets when the topic is no longer paused."""
    if topic.flowing:
        return 0
    return size_of(channel.topic_backlog_ranges(topic.backlog))


class Refusals:
    """Watches one workload."""

    def __init__(self, work: "Workload") -> None:
        self._work = work
        # Since when the free space has been the same as now.
        self._since_ns = 0

    def room(self, topic_name: str, count: int) -> DedupBudget:
        """Return the state for *count* messages that are about to be published."""
        if not self._work.rules.ruled:
            return DedupBudget()
        broker = self._work.node.broker
        topic = broker.topics.get(topic_name)
        channel = topic.channels.get(FILLS[1]) if topic and topic_name == FILLS[0] else None
        full = bool(
            channel
            and topic
            and channel.backlog.count() + _held(topic, channel) + topic.staged_count + count > BOUND
        )
        return DedupBudget(full, broker.disk_low)

    def judge(self, topic_name: str, count: int, before: DedupBudget, data: bytes) -> bool:
        """Say whether the answer *data* is a refusal. Raises Broken if that is wrong."""
        if data == b"OK":
            if before.full or before.low:
                self._work.break_off(f"{count} messages of {topic_name} were taken in spite of {before}")
            return False
        if not data.endswith((_FULL, _LOW)):
            return False
        now = self.room(topic_name, count)
        if not (before.is_reason(data) or now.is_reason(data)):
            self._work.break_off(f"{topic_name} gets {data!r}: {before}, {now}")
        return True

    # --- the disk ---

    def fill(self, seconds: float) -> None:
        """Let the disk have no free space for *seconds*."""
        if not self._work.disk.free_bytes:
            return
        self._set(0)
        self._work.loop.call_later(seconds, self.clear)

    def clear(self) -> None:
        self._set(UNLIMITED)

    def started(self) -> None:
        """Note that a node has begun to check the free space."""
        self._since_ns = self._work.loop.clock.monotonic_ns

    def look(self) -> None:
        """Check that the node knows whether space is low."""
        work = self._work
        low = not work.disk.free_bytes
        known = work.loop.clock.monotonic_ns - self._since_ns > _NOTICED_NS
        if known and not work.faulty and work.node.broker.disk_low != low:
            work.break_off(f"of the disk {work.disk.free_bytes} bytes are free, and low is {not low}")

    def _set(self, free_bytes: int) -> None:
        self._work.disk.free_bytes = free_bytes
        self.started()
