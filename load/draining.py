"""Reads the messages that the load left in the channels, so that the tally is complete."""

import time
from typing import Final

from load.book import Book
from load.connection import Access
from load.daemons import Backlog
from load.marks import Marker
from load.plan import Plan
from load.profile import ConsumerPlan
from load.reader import ChannelReader
from load.tally import Tally
from load.watching import Watch

DRAIN_SECONDS: Final = 120.0
# If the backlog has not fallen for so long, it is paused, or deferred for longer.
STALLED_SECONDS: Final = 8.0
_ROUND_SECONDS: Final = 0.5


def drain_channels(
    plan: Plan, access: Access, watch: Watch, tally: Tally, limit: float = DRAIN_SECONDS
) -> Backlog:
    """Consume until nothing is pending or nothing arrives; add it to *tally* and return the backlog."""
    book = Book("draining")
    began = moved = time.monotonic()
    marker = Marker(plan.run_bytes)
    readers: dict[str, ChannelReader] = {}
    backlog = watch.backlog()
    least = backlog.messages
    try:
        # An nsqd that does not answer may have pending messages, so it is asked again.
        while (backlog.messages or backlog.unreachable) and time.monotonic() - began < limit:
            for key in backlog.by_channel:
                topic, _, channel = key.partition(" ")
                if channel and key not in readers:
                    consumer = ConsumerPlan(ready=500)
                    readers[key] = ChannelReader(
                        plan.lookupds, [(topic, channel)], marker, book, access, consumer
                    )
            until = time.monotonic() + _ROUND_SECONDS
            while time.monotonic() < until:
                for reader in readers.values():
                    reader.turn(_ROUND_SECONDS / 10 / max(1, len(readers)))
                if not readers:
                    time.sleep(_ROUND_SECONDS / 2)
            backlog = watch.backlog()
            if backlog.messages < least:
                least, moved = backlog.messages, time.monotonic()
            if time.monotonic() - moved > STALLED_SECONDS:
                break
    finally:
        for reader in readers.values():
            reader.close()
    tally.add(book.delta(last=True))
    return watch.backlog() if readers else backlog
